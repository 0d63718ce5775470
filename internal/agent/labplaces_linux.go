package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"netemd/internal/lab"
)

// labPlaces are the labs that are being made, which have their places already: the manager
// lists them only when they are up. The zero value is ready, and safe for concurrent use.
type labPlaces struct {
	mu     sync.Mutex
	making []*making // two may ask for the same lab
}

// making is one call that makes a lab.
type making struct {
	name string
	by   lab.Identity
	// stop breaks it off, off is closed from then on, and done when it has been undone.
	stop context.CancelCauseFunc
	off  <-chan struct{}
	done chan struct{}
}

// take reserves a place until done is called, which is after the manager lists the lab or
// has given it up. The lab is to be made with the context that it returns.
func (p *labPlaces) take(
	ctx context.Context, name string, by lab.Identity, most int, list func() ([]lab.Info, error),
) (_ context.Context, done func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err // who gave up has asked already whether it is undone
	}
	infos, err := list()
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, m := range p.making {
		names = append(names, m.name)
	}
	for _, i := range infos {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	if err := labRoom(slices.Compact(names), name, most); err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	m := &making{name: name, by: by, stop: stop, off: ctx.Done(), done: make(chan struct{})}
	p.making = append(p.making, m)
	return ctx, func() {
		stop(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.making = slices.DeleteFunc(p.making, func(other *making) bool { return other == m })
		close(m.done)
	}, nil
}

// of returns the calls that make the lab.
func (p *labPlaces) of(name string) (all []*making) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.making {
		if m.name == name {
			all = append(all, m)
		}
	}
	return all
}

// breakOff ends the making of a lab, waits until it is undone, and says whether there was
// one. Another user's is left alone, as a lab that is up would be.
func (p *labPlaces) breakOff(ctx context.Context, name string) (bool, error) {
	all := p.of(name)
	for _, m := range all {
		if err := checkLabOwner(ctx, lab.Info{Name: name, By: m.by}); err != nil {
			return true, err
		}
	}
	for _, m := range all {
		m.stop(fmt.Errorf("%w: it was taken down while it was being made", lab.ErrConflict))
	}
	for _, m := range all {
		if err := m.wait(ctx); err != nil {
			return true, fmt.Errorf("lab down: %s: %w", name, err)
		}
	}
	return len(all) > 0, nil
}

// undone waits for those calls that make the lab which have been broken off. One that goes on is
// none of them.
func (p *labPlaces) undone(ctx context.Context, name string) error {
	for _, m := range p.of(name) {
		select {
		case <-m.off:
			if err := m.wait(ctx); err != nil {
				return fmt.Errorf("lab %s: %w", name, err)
			}
		default:
		}
	}
	return nil
}

func (m *making) wait(ctx context.Context) error {
	select {
	case <-m.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting until what was made is undone: %w", context.Cause(ctx))
	}
}
