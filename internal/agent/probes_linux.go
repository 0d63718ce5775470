package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"netemd/internal/engine/ebpf"
	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/prober"
	"netemd/internal/target"
	"netemd/probe"
)

// probing counts the probes of each owner, and knows those that can be stopped. The zero
// value has none.
type probing struct {
	mu   sync.Mutex
	of   map[string]int
	runs map[probeRun]stoppable
}

// probeRun is a run as its owner calls it.
type probeRun struct{ who, id string }

type stoppable struct {
	target string
	stop   context.CancelCauseFunc
}

// errProbeStopped ends a run whose owner wants what was measured until then.
var errProbeStopped = errors.New("the probe was stopped")

// begin lets a probe begin, which ends with end.
func (p *probing) begin(who string, most int) (end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of[who] >= most {
		return nil, fmt.Errorf("probe: %w: %s has %d running, which is the most for one owner (limits.probes_per_owner)", fault.ErrBusy, who, p.of[who])
	}
	if p.of == nil {
		p.of = map[string]int{}
	}
	p.of[who]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.of[who]--; p.of[who] == 0 {
			delete(p.of, who)
		}
	}, nil
}

// name gives a run the id by which its owner can stop it, until forget. An id that
// is in use stays with the first one.
func (p *probing) name(run probeRun, target string, stop context.CancelCauseFunc) (forget func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.runs[run]; ok || run.id == "" {
		return func() {}
	}
	if p.runs == nil {
		p.runs = map[probeRun]stoppable{}
	}
	p.runs[run] = stoppable{target, stop}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.runs, run)
	}
}

// target is what an owner's run probes; "" when there is no such run.
func (p *probing) target(who, id string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[probeRun{who, id}].target
}

// stop ends an owner's run, and reports whether there was one.
func (p *probing) stop(who, id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	run, ok := p.runs[probeRun{who, id}]
	if ok {
		run.stop(errProbeStopped)
	}
	return ok
}

// measure runs a probe of an owner against a target, with the kernel's evidence. Where it
// is, and what it reports, is in c; the rest is filled in. The error is fault.ErrBusy when
// that owner has as many running as one may. With an error the result has what was measured
// until then.
func (a *Agent) measure(ctx context.Context, who string, r probe.Request, c prober.Config) (probe.Result, error) {
	r = r.WithDefaults()
	if err := r.Validate(); err != nil {
		return probe.Result{}, err
	}
	if err := a.withinLimits(r); err != nil {
		return probe.Result{}, err
	}
	r.Target = canonical(r.Target)
	if err := a.oneMeant(ctx, r.Target); err != nil {
		return probe.Result{}, err
	}
	t, err := a.resolve(ctx, r.Target)
	if err != nil {
		return probe.Result{}, err
	}
	if peer, ok := peerOf(ctx); ok && peer.address != "" && t.Lab == "" {
		// It is the agent that connects, from this host, as root: its loopback and what only it
		// reaches are not for others to ask through it.
		return probe.Result{}, fmt.Errorf("probe: %w: a client on another host probes the targets of labs, and %s is none", fault.ErrDenied, t.Name)
	}
	if !t.Address.IsValid() {
		return probe.Result{}, fmt.Errorf("probe: target %s says no one address and port that a client could connect to: %w", t.Name, errors.ErrUnsupported)
	}
	if r.Kind == probe.KindPostgres && t.Lab == "" {
		return probe.Result{}, fmt.Errorf("probe: the agent has a login for the PostgreSQL of a lab, and target %s is of none: %w", t.Name, errors.ErrUnsupported)
	}
	address := t.Address
	if r.Layer == probe.LayerProxy {
		if !t.Proxy.IsValid() {
			return probe.Result{}, fmt.Errorf("probe: target %s has no proxy: %w", t.Name, errors.ErrUnsupported)
		}
		address = t.Proxy
	}
	if r.Layer == probe.LayerApp {
		if !t.HTTPProxy.IsValid() {
			return probe.Result{}, fmt.Errorf("probe: target %s has no http-proxy: %w", t.Name, errors.ErrUnsupported)
		}
		address = t.HTTPProxy
	}
	done, err := a.probing.begin(who, a.cfg.Settings.Limits.ProbesPerOwner)
	if err != nil {
		return probe.Result{}, err
	}
	defer done()
	c.Order.Request, c.Order.Address = r, address
	if r.Kind == probe.KindPostgres {
		login, err := a.labs.Postgres(t.Lab, t.Address)
		if err != nil {
			return probe.Result{}, err
		}
		c.Order.User, c.Order.Password, c.Order.Database = login.User, login.Password, login.Database
	}
	c.ClientNamespace, c.ServerNamespace = t.ClientNamespace, t.ServerNamespace
	c.Held = func() probe.Held { return a.held(ctx, r, t) }
	if service, ok := a.labs.ServiceAt(t.Lab, t.Address); ok {
		c.Down = func() []probe.Downtime { return downtimes(a.leases.Strikes(service)) }
	}
	if r.Layer == probe.LayerDirect { // else the client's connection ends at the proxy
		c.Drops = a.recordDrops
		c.Recorded = func() (some, all bool) { return a.dropsRecorded(ctx, t) }
	}
	return prober.Measure(ctx, c)
}

// withinLimits refuses a load above what the configuration allows.
func (a *Agent) withinLimits(r probe.Request) error {
	l := a.cfg.Settings.Limits
	if r.Open == nil {
		r = r.WithDefaults()
		if r.Concurrency > l.ProbeInFlight {
			return &probe.RequestError{
				Field: "concurrency", Value: strconv.Itoa(r.Concurrency), Want: fmt.Sprintf("at most %d calls at a time here (limits.probe_in_flight)", l.ProbeInFlight),
			}
		}
		if least := time.Second / time.Duration(l.ProbeRate); max(r.Pace, 0) < least && l.ProbeRate < probe.MaxRate {
			return &probe.RequestError{
				Field: "pace", Value: max(r.Pace, 0).String(), Want: fmt.Sprintf("at least %v here, which is %d calls per second (limits.probe_rate)", least, l.ProbeRate),
			}
		}
		return nil
	}
	if r.Open.MaxInFlight > l.ProbeInFlight {
		return &probe.RequestError{
			Field: "max_in_flight", Value: strconv.Itoa(r.Open.MaxInFlight), Want: fmt.Sprintf("at most %d calls here (limits.probe_in_flight)", l.ProbeInFlight),
		}
	}
	for _, s := range r.Open.Stages {
		if rate := max(s.From, s.To); rate > float64(l.ProbeRate) {
			return &probe.RequestError{
				Field: "rate", Value: strconv.FormatFloat(rate, 'f', -1, 64), Want: fmt.Sprintf("at most %d calls per second here (limits.probe_rate)", l.ProbeRate),
			}
		}
	}
	return nil
}

// onTheWay reports whether a fault on a device meets the packets of t.
func (a *Agent) onTheWay(ctx context.Context, f fault.Fault, t target.Target) bool {
	if f.Spec.Selector == nil || !slices.Contains([]string{t.ClientNamespace, t.ServerNamespace, t.To.Namespace}, f.Spec.Selector.Namespace) {
		return false
	}
	held, err := a.leases.Held(ctx, f.ID)
	if err != nil {
		return false // it has ended
	}
	return slices.ContainsFunc(held.Places, func(h lease.Held) bool {
		return h.Place.Match.Overlaps(t.To.Match) || h.Place.Match.Overlaps(t.From.Match)
	})
}

// dropsRecorded reports whether some packet fault on the way to a target is one whose drops the
// ebpf engine records, and whether all there are: numbers that lack some would be read as none
// dropped.
func (a *Agent) dropsRecorded(ctx context.Context, t target.Target) (some, all bool) {
	all = true
	for _, f := range a.leases.Known() {
		switch {
		case f.Spec.Target != t.Key() && !a.onTheWay(ctx, f, t), len(f.Spec.Toxics) > 0, f.Spec.Request != nil:
		case f.Engine == fault.EBPF:
			some = true
		default:
			all = false
		}
	}
	return some, all
}

// recordDrops begins a record of the packets that the ebpf engine drops; sch_netem keeps
// none.
func (a *Agent) recordDrops() (prober.Drops, error) {
	e, ok := a.engines[fault.EBPF].(*ebpf.Engine)
	if !ok {
		return nil, fmt.Errorf("no engine that records what it drops: %w", errors.ErrUnsupported)
	}
	return e.RecordDrops()
}
