package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"netemd/internal/content"
	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// slot is what can be in one state at a time: a place in the packet layer, a rule at
// one, a target's proxy, or a service.
type slot struct {
	key   string
	place target.Place
	proxy string // the target's name, for what is no packet
	// requests says that the proxy is the target's http-proxy.
	requests bool
	// service is the name of one that an outage is about.
	service string
	// rule chooses packets at the place; nil for an impairment of all.
	rule *content.Rule
	// index is the place's among those of the fault.
	index int
	// lane is the device's, match the key of what is selected there.
	lane, match string
}

func slotsOf(places []target.Place) []slot {
	s := make([]slot, len(places))
	for i, p := range places {
		s[i] = slot{key: p.Key(), place: p, index: i, lane: deviceLane(p), match: p.Match.Key()}
	}
	return s
}

// places are those of a packet fault.
func (h *held) places() []target.Place {
	var places []target.Place
	for _, s := range h.slots {
		if s.proxy == "" && s.service == "" {
			places = append(places, s.place)
		}
	}
	return places
}

// at returns the faults that are in force on s, oldest first.
func (m *Manager) at(s slot) []fault.Fault { return m.atWith(s, nil) }

// atWith is at with the faults of one more, whose end has begun: as it is until it is taken
// out of force.
func (m *Manager) atWith(s slot, more *held) []fault.Fault {
	m.mu.Lock()
	defer m.mu.Unlock()
	var on []fault.Fault
	for _, h := range m.order {
		if h != more && (h.ending || h.gone || !time.Now().Before(h.fault.Expires)) {
			continue
		}
		for _, o := range h.slots {
			if o.key == s.key {
				on = append(on, h.at(o))
			}
		}
	}
	return on
}

// at is h's fault as it is to be at one of its slots: with a seed of its own, and the
// impairment of that direction.
func (h *held) at(s slot) fault.Fault {
	f := h.fault
	if f.Spec.Packet != nil && (f.Spec.PacketFrom != nil || f.Spec.Packet.Seed != 0) {
		n := f.Spec.PacketAt(s.index)
		f.Spec.Packet, f.Spec.PacketFrom = &n, nil
	}
	return f
}

// enforce puts h into force in every slot of it, whole: the union of all faults
// there, until the first of them ends. step is passed after each slot. The caller holds
// the lane.
func (m *Manager) enforce(ctx context.Context, h *held, step string) error {
	for _, s := range h.slots {
		if err := m.set(ctx, h, s, m.at(s)); err != nil {
			return err
		}
		failpoint.At(step)
	}
	return nil
}

// undoTime bounds what is done after a context has ended.
const undoTime = 20 * time.Second

// undoing is a context for what is done although ctx may have ended.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), undoTime, errors.New("undo took too long"))
}

// restore puts the slots of h back to what the other faults say, also when ctx has
// ended. It goes on after an error and returns them all; what is gone needs nothing.
// The caller holds the lane.
func (m *Manager) restore(ctx context.Context, h *held) error {
	ctx, cancel := undoing(ctx)
	defer cancel()
	var errs []error
	for _, s := range slices.Concat(h.slots, h.stale) {
		if err := m.set(ctx, h, s, m.at(s)); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// set makes on all that is in force on a slot of h.
func (m *Manager) set(ctx context.Context, h *held, s slot, on []fault.Fault) error {
	if s.service != "" {
		return m.setOutage(ctx, h, s, on)
	}
	if s.requests {
		return m.setRequests(ctx, h, on)
	}
	if s.proxy != "" {
		if len(on) == 0 {
			return m.cfg.Stream.Clear(ctx, h.target)
		}
		return m.cfg.Stream.Set(ctx, h.target, toxicsOf(on), firstEnd(on))
	}
	if s.rule != nil {
		return m.setContent(ctx, s, on)
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
