package lease

import (
	"context"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// Journal remembers what is being done to the kernel, for those who clean up after this
// process. A method returns when the record would survive SIGKILL; its error refuses
// the change that was to follow. All are safe for concurrent use.
type Journal interface {
	// Intend is told before a fault changes anything at places. Again for the same
	// fault, the places are those from now on.
	Intend(ctx context.Context, f fault.Fault, places []target.Place) error
	// Hold is told before a fault is acknowledged: what it did is whole, and stands.
	Hold(ctx context.Context, f fault.Fault) error
	// End is told when nothing is left of a fault.
	End(ctx context.Context, id string, s fault.State) error
}

// noJournal remembers nothing.
type noJournal struct{}

func (noJournal) Intend(context.Context, fault.Fault, []target.Place) error { return nil }
func (noJournal) Hold(context.Context, fault.Fault) error                   { return nil }
func (noJournal) End(context.Context, string, fault.State) error            { return nil }

// recordEnd says that nothing is left of a fault, which is true whether it can be written
// down or not: who reads a journal without it looks where there is nothing.
func (m *Manager) recordEnd(ctx context.Context, id string, s fault.State) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	if err := m.cfg.Journal.End(ctx, id, s); err != nil {
		m.cfg.Log.Error("the end of a fault could not be recorded", "fault", id, "err", err)
	}
}

// recordAsIs records h as it stands after something with it failed. That it cannot be
// written down harms nobody: what was intended before is more than what there is.
func (m *Manager) recordAsIs(ctx context.Context, h *held) {
	ctx, cancel := undoing(ctx)
	defer cancel()
	err := m.cfg.Journal.Intend(ctx, h.fault, h.allPlaces())
	if err == nil {
		err = m.cfg.Journal.Hold(ctx, h.fault)
	}
	if err != nil {
		m.cfg.Log.Warn("a fault could not be recorded", "fault", h.fault.ID, "err", err)
	}
}

// allPlaces are those of h and those that it could not leave.
func (h *held) allPlaces() []target.Place {
	places := h.places()
	for _, s := range h.stale {
		if s.proxy == "" {
			places = append(places, s.place)
		}
	}
	return places
}

// allJournal is a Journal that takes a step of many faults at once: all of it is written, or
// nothing.
type allJournal interface {
	// IntendAll is Intend of each fault at the places of the same index.
	IntendAll(ctx context.Context, faults []fault.Fault, places [][]target.Place) error
	HoldAll(ctx context.Context, faults []fault.Fault) error
}

// intendAll records the intents of all; when it fails, none.
func (m *Manager) intendAll(ctx context.Context, parts []*part) error {
	if j, ok := m.cfg.Journal.(allJournal); ok {
		places := make([][]target.Place, len(parts))
		for i, p := range parts {
			places[i] = p.places()
		}
		return j.IntendAll(ctx, faultsOf(parts), places)
	}
	for i, p := range parts {
		if err := m.cfg.Journal.Intend(ctx, p.fault, p.places()); err != nil {
			for _, q := range parts[:i] {
				m.recordEnd(ctx, q.fault.ID, fault.Cleared)
			}
			return err
		}
	}
	return nil
}

// holdAll records that all are whole.
func (m *Manager) holdAll(ctx context.Context, parts []*part) error {
	if j, ok := m.cfg.Journal.(allJournal); ok {
		return j.HoldAll(ctx, faultsOf(parts))
	}
	for _, p := range parts {
		if err := m.cfg.Journal.Hold(ctx, p.fault); err != nil {
			return err
		}
	}
	return nil
}

func faultsOf(parts []*part) []fault.Fault {
	faults := make([]fault.Fault, len(parts))
	for i, p := range parts {
		faults[i] = p.fault
	}
	return faults
}
