package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

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
		if err := r.Servers.Set(ctx, name, c.Servers[name]); err != nil {
			return back, fmt.Errorf("servers.%s: %w", name, err)
		}
	}
	return back, nil
}

// counted are the services of which a condition of the plan asks for a counter.
func (r *Runner) counted() []string {
	names := map[string]bool{}
	for _, k := range r.Plan.KPIs {
		for _, ref := range k.Refs() {
			if name, _, ok := strings.Cut(ref.Kind, "."); ok && ref.Metric == "server" {
				names[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// readServers are the counters now, as SERVICE.COUNTER; what cannot be read is left out, and is
// not known then.
func (r *Runner) readServers(ctx context.Context) map[string]int64 {
	all := map[string]int64{}
	if r.Servers == nil {
		return all
	}
	for _, name := range r.counted() {
		counters, err := r.Servers.Counters(context.WithoutCancel(ctx), name)
		if err != nil {
			continue
		}
		for k, v := range counters {
			all[name+"."+k] = v
		}
	}
	return all
}

// increase is what was counted between two readings.
func increase(from, to map[string]int64) map[string]int64 {
	d := map[string]int64{}
	for name, v := range to {
		if before, ok := from[name]; ok {
			d[name] = v - before
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
