package lab

import (
	"context"
	"fmt"
)

// Hold is Up of a lab that is there for who holds it: one that this makes has Info.Held, and
// does not outlive this process. Adopt takes it down, since those who held it were this
// process's clients, and the caller does by DownHeld when the last of them has gone. A lab that
// is up is returned as it is, whatever its definition.
func (m *Manager) Hold(ctx context.Context, d Definition, by Identity, progress func(step string)) (Info, error) {
	info, err := m.up(ctx, d, by, progress, true)
	if err != nil {
		return Info{}, fmt.Errorf("lab up: %s: %w", d.Name, err)
	}
	return info, nil
}

// DownHeld is Down of a lab that is held, and agreed on: agree is called when nothing else
// changes the lab, and a lab that is not held, or is not agreed on, is left alone.
func (m *Manager) DownHeld(ctx context.Context, name string, agree func() bool) (down bool, err error) {
	return m.downIf(ctx, name, func(r *running) bool { return r.held.Load() && agree() })
}

// Follow returns a lab that is up, and a channel that is closed when something of it has
// changed since: a service ended, or the lab is being taken down. The error of one that is not
// up matches ErrUnknown.
func (m *Manager) Follow(name string) (info Info, changed <-chan struct{}, err error) {
	r, err := m.get(name)
	if err != nil {
		return Info{}, nil, err
	}
	changed = r.news.wait()
	if err := m.why(r); err != nil {
		return Info{}, nil, fmt.Errorf("%w %q: %w", ErrUnknown, name, err)
	}
	return r.info(), changed, nil
}

// stay makes a lab that was held one that nobody has to hold. The caller has its turn.
func (m *Manager) stay(r *running) error {
	if !r.held.Load() {
		return nil
	}
	r.record.Held = false
	if err := m.save(r.record); err != nil {
		r.record.Held = true
		return err
	}
	r.held.Store(false)
	return nil
}
