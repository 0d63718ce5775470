package prober

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/evidence"
	"netemd/namespaces"
	"netemd/probe"
	"netemd/probe/load"
)

// Config says what to measure, and where its two ends are.
type Config struct {
	// ClientNamespace is the named namespace in which the probe runs,
	// ServerNamespace the one in which the server listens; empty is the agent's own.
	ClientNamespace, ServerNamespace string
	Order                            Order
	// Layer is what the summary calls the run: none, packet, proxy or proxy+latency in
	// a comparison; default Order.Request.Layer.
	Layer string
	// Held, when set, says how long faults on the path hold back what passes now; it is asked
	// a few times a second.
	Held func() probe.Held
	// Report, when set, is told a few times a second how far the run is, and at its end.
	Report func(probe.Progress)
	// Sink, when set, gets every sample once it is final: with its cause, at most a second
	// after its call's end. Report and Sink are called one at a time. While they block,
	// progress is skipped and samples wait; after 32,768 of them, the calls do, and after
	// 30 s of that the run ends with ErrDeaf: then Sink gets no more, and the summary has
	// all. The slice is its own.
	Sink func([]probe.Sample)
	// Keep is the most samples that the result has; where there are more, it has none. 0:
	// probe.DefaultKeep, -1: none.
	Keep int

	// Drops, when set, begins a record of the packets that faults drop, for the run. Recorded
	// says whether it has those of a fault on the path now, and of all that there are there; it
	// is asked a few times a second, and nil means that it does. The summary has the record's
	// numbers where one was there and all were recorded at all times.
	Drops    func() (Drops, error)
	Recorded func() (some, all bool)

	// Down, when set, says in which times faults have had the server's processes stopped or
	// ended so far; it is asked a few times a second.
	Down func() []probe.Downtime

	// start is evidence.Start, or a test's refusal.
	start func(evidence.Config) (*evidence.Collector, error)
}

// Measure runs a probe and explains its slow calls from what the kernels of both
// ends retransmitted meanwhile. Where that cannot be traced, the summary's Evidence
// says so and why, and the causes come from the client's sockets, the numbers of
// retransmissions from the namespaces' counters. Its memory does not grow with the
// number of calls, but for the samples that are kept.
//
// The calls' own failures are results, not errors. With ErrTelling, Sink or Report have
// not come back 10 min after the run's end. With an error the result has
// what was measured until then. It needs root, or CAP_SYS_ADMIN, CAP_BPF and
// CAP_PERFMON. Several may run at a time.
func Measure(ctx context.Context, c Config) (probe.Result, error) {
	if err := c.Order.validate(); err != nil {
		return probe.Result{}, err
	}
	c.Order.Request = c.Order.Request.WithDefaults()
	if c.Order.Request.Seed == 0 {
		c.Order.Request.Seed = load.DrawSeed()
	}
	if c.Layer == "" {
		c.Layer = c.Order.Request.Layer
	}
	var (
		r   = c.Order.Request
		a   = probe.Attribution{Threshold: r.Threshold}
		err error
	)
	if c.Held != nil {
		a.Held = c.Held()
	}
	if c.Order.Policy == nil { // else a call lasts as long as the policy lets it
		a.Longest = r.Timeout + lastCalls
	}
	if a.ClientCookie, err = cookie(c.ClientNamespace); err != nil {
		return probe.Result{}, fmt.Errorf("probe: %w", err)
	}
	if a.ServerCookie, err = cookie(c.ServerNamespace); err != nil {
		return probe.Result{}, fmt.Errorf("probe: %w", err)
	}
	start := c.start
	if start == nil {
		start = evidence.Start
	}
	collector, refused := start(evidence.Config{Cookies: []uint64{a.ClientCookie, a.ServerCookie}})
	a.Traced = refused == nil
	before, err := c.counters(ctx)
	if err != nil {
		if a.Traced {
			_, _, stopErr := collector.Stop()
			err = errors.Join(err, stopErr)
		}
		return probe.Result{}, err
	}

	env := c.environment(ctx, &a)
	if a.Traced {
		_, blind := collector.Neighbours()
		a.NeighboursTraced = blind == nil
	}
	ctx, quit := context.WithCancelCause(ctx)
	defer quit(nil)
	f := newFlow(c, a, quit)
	f.env = env
	if a.Traced {
		f.collector = collector
	}
	opened := f.openDrops()
	f.start()
	if opened != nil {
		_, stopErr := f.stop()
		return probe.Result{}, errors.Join(opened, stopErr)
	}
	ended, runErr := run(ctx, c.ClientNamespace, childName, c.Order, mute, f.take)
	lost, err := f.stop()
	runErr = errors.Join(runErr, err)

	source := probe.EvidenceTraced
	switch {
	case refused != nil:
		source = fmt.Sprintf("%s: %v", probe.EvidenceCounters, refused)
	case lost > 0:
		source = fmt.Sprintf("%s, without %d events that were lost", source, lost)
	}
	result := f.result(source, ended)
	if refused != nil {
		after, err := c.counters(context.WithoutCancel(ctx))
		if err != nil {
			return result, errors.Join(runErr, err)
		}
		result.Summary.Retransmissions = after.Since(before).Causes()
	}
	return result, runErr
}

// counters are both ends' counters in one.
func (c Config) counters(ctx context.Context) (evidence.Counters, error) {
	sum, err := evidence.ReadCounters(ctx, c.ClientNamespace)
	if err != nil || c.ClientNamespace == c.ServerNamespace {
		return sum, err
	}
	server, err := evidence.ReadCounters(ctx, c.ServerNamespace)
	return sum.Plus(server), err
}

func cookie(namespace string) (uint64, error) {
	n, err := namespaces.Open(namespace)
	if err != nil {
		return 0, err
	}
	defer func() { _ = n.Close() }()
	return n.Cookie()
}
