package experiment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"netemd/internal/experiment/plan"
	"netemd/internal/fault"
)

// standing are the faults of a phase, as far as they were made.
type standing struct {
	runner *Runner
	name   string // of the case
	repeat int
	faults []stood
}

// stood is a fault that is held, or was.
type stood struct {
	of      *plan.Timed
	holding *Holding
	// begin is when it was asked for, since when it stood.
	begin, since time.Time
	last         fault.Fault
	void         string
}

// outcome is what became of the faults of a phase.
type outcome struct {
	// counters of the packet faults; nil without one.
	counters *fault.Counters
	// asked is the loss of the only packet fault; NaN without one.
	asked float64
	// outages are what faults of processes did.
	outages []fault.StrikeRecord
	// void says why the phase counts for nothing.
	void string
}

// step is a fault that begins or ends.
type step struct {
	at             time.Duration
	apply, release *plan.Timed
}

// last says whether it is the phase's end.
func (s step) last() bool { return s.apply == nil && s.release == nil }

// steps are the beginnings and ends of the faults in their order, and the phase's end; of
// those at one time the ends come first.
func steps(c plan.Case) []step {
	all := []step{{at: c.Fault.For}}
	for i := range c.Faults {
		f := &c.Faults[i]
		all = append(all, step{at: f.At, apply: f})
		if f.For > 0 {
			all = append(all, step{at: f.At + f.For, release: f})
		}
	}
	slices.SortStableFunc(all, func(a, b step) int {
		return cmp.Or(cmp.Compare(a.at, b.at), order(a)-order(b))
	})
	return all
}

func order(s step) int {
	switch {
	case s.last():
		return 2
	case s.release != nil:
		return 0
	}
	return 1
}

// apply makes a fault; each repeat has a seed of its own, which follows from the plan's.
func (s *standing) apply(ctx context.Context, t *plan.Timed) error {
	spec := seeded(t.Spec, s.runner.Plan.Lab != "", func(own uint64) uint64 {
		return fault.Seed(cmp.Or(own, s.runner.Plan.Seed), s.repeat)
	})
	if i := slices.IndexFunc(s.faults, func(f stood) bool { return f.holding != nil }); i >= 0 {
		spec.Beside = s.faults[i].holding.Fault.ID // those of one phase combine
	}
	s.runner.tell(Moment{Kind: MomentFault, Event: Asked, Case: s.name, Repeat: s.repeat, Spec: &spec})
	begin := s.runner.Now()
	h, err := Hold(ctx, s.runner.Faults, spec, nil)
	if err != nil {
		return err
	}
	s.faults = append(s.faults, stood{of: t, holding: h, begin: begin, since: s.runner.Now()})
	return nil
}

// due is when a fault is to be taken away, in a phase that began then: one that was late to stand
// is left for as long as it was asked for, as far as the phase goes.
func (s *standing) due(t *plan.Timed, began time.Time, phase time.Duration) time.Duration {
	at := t.At + t.For
	for _, f := range s.faults {
		if f.of == t && f.holding != nil {
			at = max(at, min(f.since.Sub(began)+t.For, phase))
		}
	}
	return at
}

// seeded is a copy of a spec with all that it draws by other seeds. Toxics outside of a lab may
// be on a Toxiproxy of somebody else's, which takes none.
func seeded(spec fault.Spec, lab bool, by func(own uint64) uint64) fault.Spec {
	switch {
	case spec.Packet != nil:
		spec.Packet = new(*spec.Packet)
		spec.Packet.Seed = by(spec.Packet.Seed)
	case spec.Request != nil:
		spec.Request = new(*spec.Request)
		spec.Request.Seed = by(spec.Request.Seed)
	case spec.Outage != nil:
		spec.Outage = new(*spec.Outage)
		spec.Outage.Seed = by(spec.Outage.Seed)
	case spec.Toxics != nil:
		spec.Toxics = slices.Clone(spec.Toxics)
		for i := range spec.Toxics {
			if t := &spec.Toxics[i]; t.Draws() && (lab || t.Seed != 0) {
				t.Seed = fault.Seed(by(t.Seed), i)
			}
		}
	}
	return spec
}

// applyAll makes all faults of a case; what was made before an error stands still.
func (s *standing) applyAll(ctx context.Context, faults []plan.Timed) error {
	for i := range faults {
		if err := s.apply(ctx, &faults[i]); err != nil {
			return err
		}
	}
	return nil
}

// first is the id of the first fault that stands; empty without one.
func (s *standing) first() string {
	if len(s.faults) == 0 || s.faults[0].holding == nil {
		return ""
	}
	return s.faults[0].holding.Fault.ID
}

// end takes a fault away.
func (s *standing) end(ctx context.Context, t *plan.Timed) {
	for i := range s.faults {
		f := &s.faults[i]
		if f.of != t || f.holding == nil {
			continue
		}
		last, err := f.holding.Release(ctx)
		gaps := f.holding.Gaps()
		f.last, f.holding = last, nil
		s.runner.stood = append(s.runner.stood, interval{f.begin, s.runner.Now()})
		switch {
		case err != nil:
			f.void = fmt.Sprintf("the fault %s was not held to its end: %v", last.ID, err)
		case last.State != fault.Active:
			f.void = fmt.Sprintf("the fault %s was %s", last.ID, last.State)
		case gaps.Count > 0:
			f.void = fmt.Sprintf("the fault %s was not in force for %v", last.ID, gaps.Total.Round(time.Millisecond))
		default:
			f.void = unmet(last)
		}
	}
}

// unmet says that a fault met nothing to act on; empty where it did.
func unmet(f fault.Fault) string {
	switch s := f.Spec; {
	case s.Packet != nil && f.Counters.Seen == 0:
		return fmt.Sprintf("no packet matched the fault %s", f.ID)
	case s.Content != nil && f.Chosen() == 0:
		return fmt.Sprintf("the rule of the fault %s chose no packet", f.ID)
	case s.Request != nil && f.Counters.Seen == 0:
		return fmt.Sprintf("no request came to the fault %s", f.ID)
	case s.Outage != nil && (f.Outages == nil || f.Outages.Done == 0):
		return fmt.Sprintf("the fault %s made no service fail", f.ID)
	case s.Outage != nil && f.Outages.Failed > 0:
		return fmt.Sprintf("after the fault %s a service was not back", f.ID)
	}
	return ""
}

// release takes all away that still stand, in the opposite order; a second one does nothing.
func (s *standing) release(ctx context.Context) {
	for _, f := range slices.Backward(s.faults) {
		s.end(ctx, f.of)
	}
}

// outcome is asked for when all are released.
func (s *standing) outcome(c plan.Case) *outcome {
	if len(c.Faults) == 0 {
		return nil
	}
	o := &outcome{asked: math.NaN()}
	packets := 0
	for _, f := range s.faults {
		if o.void == "" {
			o.void = f.void
		}
		if run := f.last.Outages; run != nil {
			o.outages = append(o.outages, run.Strikes...)
		}
		if p := f.last.Spec.Packet; p != nil {
			if o.counters == nil {
				o.counters = &fault.Counters{}
			}
			*o.counters = o.counters.Add(f.last.Counters)
			o.asked = float64(p.Loss) / 100
			packets++
		}
	}
	if packets != 1 {
		o.asked = math.NaN()
	}
	if o.void == "" && len(s.faults) < len(c.Faults) {
		o.void = "not every fault was made"
	}
	return o
}
