package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"netemd/internal/experiment/plan"
	"netemd/internal/kpi"
)

// Servers are those of the plan's lab, by the names of their services.
type Servers interface {
	// Set replaces the settings of one; an empty text is those that its lab says.
	Set(ctx context.Context, service string, text []byte) error
	// Counters are what one has counted since its start.
	Counters(ctx context.Context, service string) (map[string]int64, error)
}

// setServers has the services of a case do what it says; back has them do again what their lab
// says.
func (r *Runner) setServers(ctx context.Context, c plan.Case) (back func(context.Context) error, err error) {
	var set []string
	back = func(ctx context.Context) error {
		var errs []error
		for _, name := range set {
			errs = append(errs, r.Servers.Set(ctx, name, []byte{}))
		}
		return errors.Join(errs...)
	}
	for _, name := range c.Services() {
		if r.Servers == nil {
			return back, errors.New("servers: the plan has no lab")
		}
		set = append(set, name)
		r.tell(Moment{Kind: MomentServers, Event: Set, Case: c.Name, Service: name, Settings: c.Servers[name]})
		if err := r.Servers.Set(ctx, name, c.Servers[name]); err != nil {
			return back, fmt.Errorf("servers.%s: %w", name, err)
		}
	}
	return back, nil
}

// counted are the services of which a condition of the plan asks for a counter.
func (r *Runner) counted() []string { return slices.Sorted(maps.Keys(r.Plan.Counters())) }

// reading is what servers have counted until a moment, as SERVICE.COUNTER; what could not be
// read is not in it.
type reading struct {
	counters map[string]int64
	// doubt says why it is not all that the calls before it made; empty otherwise.
	doubt string
}

// watched are the servers of the plan that may still be at work when its calls have ended: those
// that are asked for a counter, and those that a case sets.
func (r *Runner) watched() []string {
	names := r.counted()
	for _, c := range r.Plan.Cases {
		names = append(names, c.Services()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// read asks servers for their counters now.
func (r *Runner) read(ctx context.Context, names []string) reading {
	now := reading{counters: map[string]int64{}}
	if r.Servers == nil {
		return now
	}
	for _, name := range names {
		counters, err := r.Servers.Counters(context.WithoutCancel(ctx), name)
		if err != nil {
			continue
		}
		for k, v := range counters {
			now.counters[name+"."+k] = v
		}
	}
	return now
}

// readServers are the counters of those that are asked for one.
func (r *Runner) readServers(ctx context.Context) reading { return r.read(ctx, r.counted()) }

// settleLimit is how long servers may work on after the last call of a run: longer than any
// timeout of the catalogue. settlePause is between two looks.
const (
	settleLimit = 30 * time.Second
	settlePause = 20 * time.Millisecond
)

// settled are the counters at the end of a run, once no server works any more at what callers
// asked that have gone, and nothing came between two looks. It waits settleLimit at most.
func (r *Runner) settled(ctx context.Context) reading {
	names := r.watched()
	now := r.read(ctx, names)
	if len(names) == 0 || r.Servers == nil {
		return now
	}
	for until := r.Now().Add(settleLimit); ; {
		before := now
		err := sleep(ctx, settlePause)
		now = r.read(ctx, names)
		busy := now.busy()
		switch {
		case err != nil:
			now.doubt = "the run ended while servers may have been at work"
			return now
		case len(busy) == 0 && maps.Equal(before.counters, now.counters):
			return now
		case r.Now().After(until):
			now.doubt = fmt.Sprintf("%v after the last call servers were still at work: %s", settleLimit, cmp.Or(strings.Join(busy, ", "), "requests still came"))
			return now
		}
	}
}

// busy are the servers with requests under way, with their number.
func (r reading) busy() (all []string) {
	for _, name := range slices.Sorted(maps.Keys(r.counters)) {
		if service, ok := strings.CutSuffix(name, ".in_flight"); ok && r.counters[name] != 0 {
			all = append(all, fmt.Sprintf("%s with %d requests", service, r.counters[name]))
		}
	}
	return all
}

// increase is what was counted between two readings.
func increase(from, to reading) reading {
	d := reading{counters: map[string]int64{}, doubt: to.doubt}
	for name, v := range to.counters {
		if before, ok := from.counters[name]; ok {
			d.counters[name] = v - before
		}
	}
	return d
}

// server is the sum of a counter's increases.
func (o Observations) server(r kpi.Ref) (kpi.Value, error) {
	if r.After > 0 || r.Within > 0 {
		return kpi.Value{}, errors.New("what servers counted is known of whole phases")
	}
	sum := int64(0)
	for _, x := range o {
		if x.Unsettled != "" {
			return kpi.Value{}, fmt.Errorf("%s: %s", x.name(), x.Unsettled)
		}
		n, ok := x.Servers[r.Kind]
		if !ok {
			return kpi.Value{}, fmt.Errorf("%s: no server counted %s", x.name(), r.Kind)
		}
		if n < 0 {
			return kpi.Value{}, fmt.Errorf("%s: the server of %s was started again", x.name(), r.Kind)
		}
		sum += n
	}
	return kpi.Value{Number: float64(sum)}, nil
}
