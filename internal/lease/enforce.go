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
	key   string
	place target.Place
	proxy string // the target's name, for the stream layer
}

func (h *held) slots() []slot {
	if !h.isPacket() {
		return []slot{{key: "proxy " + h.target.Name, proxy: h.target.Name}}
	}
	s := make([]slot, len(h.places))
	for i, p := range h.places {
		s[i] = slot{key: p.Key(), place: p}
	}
	return s
}

// at returns the faults that are in force on s, oldest first.
func (m *Manager) at(s slot) []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var on []fault.Fault
	for _, h := range m.inOrder() {
		if h.ending || !time.Now().Before(h.fault.Expires) {
			continue
		}
		for _, o := range h.slots() {
			if o.key == s.key {
				on = append(on, h.fault)
			}
		}
	}
	return on
}

// enforce puts h into force in every slot of it, whole: the union of all faults
// there, until the first of them ends. The caller holds the lane.
func (m *Manager) enforce(ctx context.Context, h *held) error {
	for _, s := range h.slots() {
		if err := m.set(ctx, h, s, m.at(s)); err != nil {
			return err
		}
	}
	return nil
}

// undoTime bounds what is done after a context has ended.
const undoTime = 20 * time.Second

// restore puts the slots of h back to what the other faults say, also when ctx has
// ended. It goes on after an error and returns them all. The caller holds the lane.
func (m *Manager) restore(ctx context.Context, h *held) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), undoTime, errors.New("undo took too long"))
	defer cancel()
	var errs []error
	for _, s := range h.slots() {
		errs = append(errs, m.set(ctx, h, s, m.at(s)))
	}
	return errors.Join(errs...)
}

// set makes on all that is in force on a slot of h.
func (m *Manager) set(ctx context.Context, h *held, s slot, on []fault.Fault) error {
	if s.proxy != "" {
		if len(on) == 0 {
			return m.cfg.Stream.Clear(ctx, h.target)
		}
		return m.cfg.Stream.Set(ctx, h.target, toxicsOf(on), firstEnd(on))
	}
	engine := m.cfg.Engines[h.fault.Engine]
	if len(on) == 0 {
		return engine.Clear(ctx, s.place)
	}
	n := union(on)
	if err := n.Validate(); err != nil {
		return fmt.Errorf("the faults on this flow together: %w", err)
	}
	return engine.Set(ctx, s.place, n, firstEnd(on))
}

func firstEnd(on []fault.Fault) time.Time {
	end := on[0].Expires
	for _, f := range on {
		if f.Expires.Before(end) {
			end = f.Expires
		}
	}
	return end
}

// union is what packet faults that set different things amount to.
func union(on []fault.Fault) qdisc.Netem {
	var n qdisc.Netem
	for _, f := range on {
		n, _ = n.Merge(*f.Spec.Packet)
	}
	return n
}

func toxicsOf(on []fault.Fault) []fault.Toxic {
	var toxics []fault.Toxic
	for _, f := range on {
		toxics = append(toxics, f.Spec.Toxics...)
	}
	return toxics
}
