package prober

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/evidence"
	"netemd/namespaces"
	"netemd/probe"
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
	// PathDelayed says that a fault delays every packet of the path, so that a slow
	// call without a retransmission is slow by queueing.
	PathDelayed bool
	// Report, when set, is told after every call how many of how many are done.
	Report func(done, count int)

	// start is evidence.Start, or a test's refusal.
	start func(evidence.Config) (*evidence.Collector, error)
}

// Measure runs a probe and explains its slow calls from what the kernels of both
// ends retransmitted meanwhile. Where that cannot be traced, the summary's Evidence
// says so and why, and the causes come from the client's sockets, the numbers of
// retransmissions from the namespaces' counters.
//
// The calls' own failures are results, not errors. With an error the result has
// what was measured until then. It needs root, or CAP_SYS_ADMIN, CAP_BPF and
// CAP_PERFMON. Several may run at a time.
func Measure(ctx context.Context, c Config) (probe.Result, error) {
	c.Order.Request = c.Order.Request.WithDefaults()
	if c.Layer == "" {
		c.Layer = c.Order.Request.Layer
	}
	var (
		a   = probe.Attribution{PathDelayed: c.PathDelayed}
		err error
	)
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

	samples, runErr := Run(ctx, c.ClientNamespace, c.Order, c.Report)

	var (
		events []probe.Retransmission
		source = probe.EvidenceTraced
		lost   uint64
	)
	if a.Traced {
		// an event was in the ring before the call that it delayed could end, and Stop
		// empties the ring: there are none to wait for
		if events, lost, err = collector.Stop(); err != nil {
			runErr = errors.Join(runErr, err)
		}
		if lost > 0 {
			a.Traced = false
			source = fmt.Sprintf("%s, without %d events that were lost", source, lost)
		}
	} else {
		source = fmt.Sprintf("%s: %v", probe.EvidenceCounters, refused)
	}
	probe.Attribute(samples, events, a)
	r := probe.Result{
		Summary: probe.Summarize(c.Order.Request.Target, c.Layer, samples, source),
		Samples: samples,
	}
	if refused != nil {
		after, err := c.counters(context.WithoutCancel(ctx))
		if err != nil {
			return r, errors.Join(runErr, err)
		}
		r.Summary.Retransmissions = after.Since(before).Causes()
	}
	return r, runErr
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
