package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/failpoint"
	"netemd/namespaces"
)

// Up makes a lab, whose commands run as who asked for it, tells progress each step (which
// may be nil) and returns when all services are ready. A lab that is up is returned as it is; one that was held stays from then on. When a step fails or ctx
// ends, everything is undone; what could not be is kept as a broken lab, for Down. The
// error is ErrConflict when a namespace's name is taken or the lab is up with another
// definition, or broken.
func (m *Manager) Up(ctx context.Context, d Definition, by Identity, progress func(step string)) (Info, error) {
	info, err := m.up(ctx, d, by, progress, false)
	if err != nil {
		return Info{}, fmt.Errorf("lab up: %s: %w", d.Name, err)
	}
	return info, nil
}

func (m *Manager) up(ctx context.Context, d Definition, by Identity, progress func(string), held bool) (Info, error) {
	l, err := d.layout()
	if err != nil {
		return Info{}, err
	}
	if err := d.checkIdentities(by); err != nil {
		return Info{}, err
	}
	if l.impaired() && m.cfg.Engine == nil {
		return Info{}, fmt.Errorf("no engine for base impairments: %w", errors.ErrUnsupported)
	}
	progress = oneByOne(progress)
	if err := m.turns.take(ctx, d.Name); err != nil {
		return Info{}, err
	}
	defer m.turns.leave(d.Name)
	if old, err := m.get(d.Name); err == nil {
		if err := m.again(ctx, old, d, held); err != nil {
			return Info{}, err
		}
		progress("is up already")
		return old.info(), nil
	}
	boot, err := bootID()
	if err != nil {
		return Info{}, err
	}
	if err := m.preflight(ctx, l); err != nil {
		return Info{}, err
	}
	r := &running{layout: l, record: &record{SchemaVersion: recordVersion, BootID: boot, Definition: d, By: by, Held: held}}
	r.held.Store(held)
	if err := m.make(ctx, r, progress); err != nil {
		progress("undo")
		return Info{}, errors.Join(err, m.undo(ctx, r))
	}
	m.keep(r)
	return r.info(), nil
}

// oneByOne makes progress safe for concurrent use; nil is nobody who listens.
func oneByOne(progress func(string)) func(string) {
	var mu sync.Mutex
	return func(step string) {
		if progress != nil {
			mu.Lock()
			defer mu.Unlock()
			progress(step)
		}
	}
}

// again is an Up, or a Hold, of a lab that is up.
func (m *Manager) again(ctx context.Context, old *running, d Definition, held bool) error {
	if held {
		if err := m.why(old); err != nil {
			return fmt.Errorf("%w: %w; take it down first", ErrConflict, err)
		}
		return nil
	}
	if err := m.same(ctx, old, d); err != nil {
		return err
	}
	return m.stay(old)
}

// same checks that a lab which is up is whole, and the one asked for.
func (m *Manager) same(ctx context.Context, old *running, d Definition) error {
	if err := m.why(old); err != nil {
		return fmt.Errorf("%w: %w; take it down first", ErrConflict, err)
	}
	if !old.record.Definition.Equal(d) {
		return fmt.Errorf("%w: it is up with another definition", ErrConflict)
	}
	err := m.present(ctx, old.layout)
	for _, p := range old.layout.wireDevices() {
		if err == nil {
			err = locate(ctx, &p)
		}
	}
	for _, s := range old.record.Services {
		if err == nil && !s.Process.Alive() {
			err = fmt.Errorf("service %s has ended", s.Name)
		}
	}
	if err != nil {
		return fmt.Errorf("%w: it is up and broken: %w; take it down first", ErrConflict, err)
	}
	return nil
}

// preflight changes nothing.
func (m *Manager) preflight(ctx context.Context, l *layout) error {
	d := l.definition
	if _, err := os.Lstat(m.recordPath(d.Name)); err == nil {
		return fmt.Errorf("%w: what is left of an earlier lab could not be removed (%s); stop the agent and run netemd cleanup", ErrConflict, m.recordPath(d.Name))
	}
	for _, s := range l.spots {
		ns := d.Namespace(s.name)
		mark, err := readMark(ctx, ns)
		switch {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return fmt.Errorf("%w: namespace %s is there already: %w", ErrConflict, ns, err)
		default:
			return fmt.Errorf("%w: namespace %s is there already: %s", ErrConflict, ns, owner(mark))
		}
	}
	return nil
}

// make makes all of the lab, its record first.
func (m *Manager) make(ctx context.Context, r *running, progress func(string)) error {
	if err := m.save(r.record); err != nil {
		return err
	}
	failpoint.At("lab.up.recorded")
	if err := m.makeNetwork(ctx, r, progress); err != nil {
		return err
	}
	if err := m.devices(ctx, r); err != nil {
		return err
	}
	if err := m.startServices(ctx, r, progress); err != nil {
		return err
	}
	r.record.Complete, r.record.Up = true, time.Now().UTC()
	err := m.save(r.record)
	failpoint.At("lab.up.complete")
	if err == nil {
		err = context.Cause(ctx) // nobody waits for it any more
	}
	return err
}

// makeNetwork makes the namespaces, the veth pairs between them and what is on their
// devices, each kind of thing for all of the lab before the next.
func (m *Manager) makeNetwork(ctx context.Context, r *running, progress func(string)) error {
	l := r.layout
	namespace := func(s *spot) string { return l.definition.Namespace(s.name) }

	var trees sysctlTrees
	defer func() { _ = trees.Close() }()
	sysctls := make([][]Sysctl, len(l.spots))
	made := count(progress, "namespaces", len(l.spots))
	err := each(ctx, len(l.spots), func(_ context.Context, i int) (err error) {
		if sysctls[i], err = m.makeSpot(l, l.spots[i], &trees); err == nil {
			failpoint.At("lab.up.namespace")
			made.step()
		}
		return err
	})
	if err != nil {
		return err
	}

	if pairs := l.pairs(); len(pairs) > 0 {
		laid := count(progress, "links", len(pairs))
		err := each(ctx, len(pairs), func(_ context.Context, i int) error {
			if err := handle(func(h *netlink.Handle) error { return l.lay(h, pairs[i]) }); err != nil {
				return err
			}
			failpoint.At("lab.up.link")
			laid.step()
			return nil
		})
		if err != nil {
			return err
		}
	}

	set := count(progress, "addresses and routes", len(l.spots))
	err = each(ctx, len(l.spots), func(ctx context.Context, i int) error {
		s := l.spots[i]
		err := namespaces.Do(ctx, namespace(s), func() error {
			if err := m.setUp(l, s); err != nil {
				return err
			}
			if len(s.node.Sysctls) == 0 {
				return nil
			}
			return trees.with(func(tree *sysctlTree) error {
				back, err := insist(tree, s.node.Sysctls)
				sysctls[i] = merge(sysctls[i], back)
				return err
			})
		})
		if err != nil {
			return inNode(s, err)
		}
		failpoint.At("lab.up.node")
		set.step()
		return nil
	})
	if err != nil {
		return err
	}
	r.record.keepSysctls(l, sysctls)
	return each(ctx, len(l.spots), func(ctx context.Context, i int) error {
		return operational(ctx, namespace(l.spots[i]))
	})
}

// inNode says whose the error is.
func inNode(s *spot, err error) error { return fmt.Errorf("node %s: %w", s.name, err) }

// devices resolves the targets, gives the wires' devices to NewDevice and has the base
// impairments put on.
func (m *Manager) devices(ctx context.Context, r *running) error {
	targets, err := r.layout.targets()
	if err != nil {
		return err
	}
	for i := range targets {
		if err := errors.Join(locate(ctx, &targets[i].To), locate(ctx, &targets[i].From)); err != nil {
			return err
		}
	}
	r.targets = targets
	if m.cfg.NewDevice != nil {
		places := r.layout.wireDevices()
		err := each(ctx, len(places), func(ctx context.Context, i int) error {
			p := places[i]
			if err := locate(ctx, &p); err != nil {
				return err
			}
			if err := m.cfg.NewDevice(ctx, p); err != nil {
				return fmt.Errorf("device %s in %s: %w", p.Device, p.Namespace, err)
			}
			failpoint.At("lab.up.device")
			return nil
		})
		if err != nil {
			return err
		}
	}
	return m.impair(ctx, r.layout)
}
