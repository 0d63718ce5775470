package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// slot is what can be in one state at a time: a place in the packet layer, or a
// target's proxy.
type slot struct {
	place target.Place
	proxy string // the target's name, for the stream layer
}

func (h *held) slots() []slot {
	if h.fault.Spec.Packet == nil {
		return []slot{{proxy: h.target.Name}}
	}
	s := make([]slot, len(h.places))
	for i, p := range h.places {
		s[i] = slot{place: p}
	}
	return s
}

// at returns the faults on s, oldest first.
func (m *Manager) at(s slot) []*held {
	var on []*held
	for _, h := range m.inOrder() {
		for _, o := range h.slots() {
			if o == s {
				on = append(on, h)
			}
		}
	}
	return on
}

// enforce puts the held faults of each slot into force, whole: their union, until
// the first of them ends.
func (m *Manager) enforce(ctx context.Context, slots []slot) error {
	for _, s := range slots {
		on := m.at(s)
		if len(on) == 0 {
			return fmt.Errorf("apply: no fault on %v", s)
		}
		if err := m.set(ctx, s, on); err != nil {
			return err
		}
	}
	return nil
}

func (m *Manager) set(ctx context.Context, s slot, on []*held) error {
	deadline := on[0].fault.Expires
	for _, h := range on {
		if h.fault.Expires.Before(deadline) {
			deadline = h.fault.Expires
		}
	}
	if s.proxy != "" {
		var toxics []fault.Toxic
		for _, h := range on {
			toxics = append(toxics, h.fault.Spec.Toxics...)
		}
		return m.cfg.Stream.Set(ctx, on[0].target, toxics, deadline)
	}
	var n qdisc.Netem
	for _, h := range on {
		n, _ = n.Merge(*h.fault.Spec.Packet)
	}
	if err := n.Validate(); err != nil {
		return fmt.Errorf("the faults on this flow together: %w", err)
	}
	return m.cfg.Engines[on[0].fault.Engine].Set(ctx, s.place, n, deadline)
}

// undoTime bounds what is done after a context has ended.
const undoTime = 10 * time.Second

// restore puts slots back to what the held faults say, also when ctx has ended. It
// goes on after an error and returns them all.
func (m *Manager) restore(ctx context.Context, slots []slot) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTime, errors.New("undo took too long"))
	defer cancel()
	var errs []error
	for _, s := range slots {
		if on := m.at(s); len(on) > 0 {
			errs = append(errs, m.set(ctx, s, on))
		} else {
			errs = append(errs, m.clearSlot(ctx, s))
		}
	}
	return errors.Join(errs...)
}

func (m *Manager) clearSlot(ctx context.Context, s slot) error {
	if s.proxy != "" {
		t, err := m.cfg.Resolve(ctx, s.proxy)
		if errors.Is(err, target.ErrUnknown) {
			return nil // the proxy went with its lab
		}
		if err != nil {
			return err
		}
		return m.cfg.Stream.Clear(ctx, t)
	}
	var errs []error
	for _, e := range m.cfg.Engines {
		if err := e.Clear(ctx, s.place); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
