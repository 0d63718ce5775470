package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// enterNew finds where h is to be, and enters the lanes of that.
func (m *Manager) enterNew(ctx context.Context, h *held) (leave func(), err error) {
	for {
		if err := m.aim(ctx, h); err != nil {
			return nil, err
		}
		keys := h.lanes()
		if leave, err = m.lanes.enter(ctx, keys); err != nil {
			return nil, fmt.Errorf("apply: %w", err)
		}
		if h.fault.Spec.Selector != nil {
			m.adopt(h)
			return leave, nil
		}
		// A target may have gone while we waited, or come back elsewhere.
		if err := m.aim(ctx, h); err != nil {
			leave()
			return nil, err
		}
		if slices.Equal(keys, h.lanes()) {
			return leave, nil
		}
		leave()
	}
}

// plan decides everything about h that needs no change of the kernel.
func (m *Manager) plan(ctx context.Context, h *held) error {
	if h.fault.Spec.Outage != nil {
		return m.planOutage(h)
	}
	if h.fault.Spec.Request != nil {
		return m.planRequests(h)
	}
	if !h.isPacket() {
		return m.planStream(h)
	}
	if m.cfg.Protect != nil {
		if err := m.cfg.Protect(ctx, h.fault.Spec, h.places()); err != nil {
			return err
		}
	}
	if err := m.chooseEngine(ctx, h); err != nil {
		return err
	}
	if err := m.offloadRead(ctx, h, &h.fault); err != nil {
		return err
	}
	h.fault.Placement = h.placement()
	h.fault.Warnings = h.warnings()
	return nil
}

// aim resolves what h is aimed at, now.
func (m *Manager) aim(ctx context.Context, h *held) error {
	t, err := m.cfg.Resolve(ctx, h.fault.Spec)
	if err != nil {
		return err
	}
	h.target = t
	if o := h.fault.Spec.Outage; o != nil {
		h.slots = serviceSlots(o)
		return nil
	}
	if h.fault.Spec.Request != nil {
		h.slots = []slot{requestSlot(t)}
		return nil
	}
	if !h.isPacket() {
		h.slots = []slot{{key: "proxy " + t.Name, proxy: t.Name}}
		return nil
	}
	places, err := placesFor(t, h.fault.Spec)
	h.slots = slotsFor(h.fault.Spec, places)
	return err
}

// placesFor is placesOf for what s asks for: where each direction has an impairment of its own,
// each needs a place of its own.
func placesFor(t target.Target, s fault.Spec) ([]target.Place, error) {
	places, err := placesOf(t, s.Direction)
	if err == nil && len(places) == 1 && s.Asymmetric() {
		return nil, &qdisc.FieldError{
			Field: "direction", Value: string(s.Direction),
			Want: fmt.Sprintf("to or from, or the same impairment of both: packets of both directions pass the %s, and are not told apart there", places[0]),
		}
	}
	return places, err
}

// placesOf are the places of t in a direction. What passes one hook in both, and is
// the same there, is one place for both; where it cannot be told apart otherwise, the
// error is a *qdisc.FieldError.
func placesOf(t target.Target, d fault.Direction) ([]target.Place, error) {
	switch {
	case d == fault.To, d == fault.Both && t.To.Key() == t.From.Key():
		return []target.Place{t.To}, nil
	case t.TellApart() != nil:
		return nil, t.TellApart()
	case d == fault.From:
		return []target.Place{t.From}, nil
	}
	return []target.Place{t.To, t.From}, nil
}

// placement says where h sits.
func (h *held) placement() []string {
	if h.fault.Spec.Outage != nil {
		return h.outagePlacement()
	}
	if h.fault.Spec.Request != nil {
		return []string{"http-proxy at " + h.target.HTTPProxy.String()}
	}
	if !h.isPacket() {
		if p := h.target.Toxiproxy; p != nil {
			return []string{p.Words()}
		}
		return []string{"proxy at " + h.target.Proxy.String()}
	}
	var phrases []string
	for _, p := range h.places() {
		phrases = append(phrases, p.String())
	}
	return phrases
}

func (m *Manager) planStream(h *held) error {
	foreign := h.target.Toxiproxy
	if m.cfg.Stream == nil || !h.target.Proxy.IsValid() && foreign == nil {
		return fmt.Errorf("apply: target %s has no proxy for the stream layer: %w", h.fault.Spec.Target, errors.ErrUnsupported)
	}
	h.fault.Engine, h.fault.EngineReason = fault.Stream, "toxics act on connections through the proxy"
	if foreign != nil {
		h.fault.Proxy = foreign.Text()
	}
	h.fault.Placement = h.placement()
	h.fault.Warnings = h.warnings()
	return nil
}

func (m *Manager) chooseEngine(ctx context.Context, h *held) error {
	if h.fault.Spec.Content != nil {
		return m.chooseContentEngine(h)
	}
	want := h.fault.Spec.Engine
	m.mu.Lock()
	inUse, err := m.engineAt(h)
	m.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Errorf("apply: %w", err)
	case want != "" && want != fault.Auto:
		h.fault.Engine, h.fault.EngineReason = want, "asked for"
	case inUse != "":
		h.fault.Engine, h.fault.EngineReason = inUse, "carries another fault on the same flow"
	default:
		name, reason, err := m.cfg.Choose(ctx, h.places())
		if err != nil {
			return err
		}
		h.fault.Engine, h.fault.EngineReason = name, reason
	}
	if m.cfg.Engines[h.fault.Engine] == nil {
		return fmt.Errorf("apply: engine %s is not available on this machine ('netemctl doctor' says why): %w", h.fault.Engine, errors.ErrUnsupported)
	}
	return nil
}

// engineAt returns the engine in use at one of h's places, if any, which an other than the
// one that was asked for is a conflict with. The caller holds the lock.
func (m *Manager) engineAt(h *held) (fault.Engine, error) {
	for _, other := range m.order {
		if other != h && other.isPacket() && sharesSlot(h, other) {
			if err := engineConflict(h, other); err != nil {
				return "", obstructs(h, other, err)
			}
			return other.fault.Engine, nil
		}
	}
	return "", nil
}
