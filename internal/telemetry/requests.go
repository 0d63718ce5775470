package telemetry

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
)

// requests leaves looks alone: they come twice a second.
type requests struct {
	lease.RequestEngine
	steps
}

func (e requests) SetRequests(ctx context.Context, t target.Target, faults []fault.Fault) error {
	return e.step(ctx, "engine set", func(ctx context.Context) error { return e.RequestEngine.SetRequests(ctx, t, faults) })
}

// newRequestsTotal counts requests, which are no packets.
func newRequestsTotal() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "netemd_requests_total",
		Help: "Requests that faults met, by what became of them: seen (all that were selected), error (answered with one), delayed, aborted (reset), opened (let through because nothing was heard of the agent).",
	}, []string{"outcome"})
}

func addRequests(total *prometheus.CounterVec, n fault.Counters) {
	for outcome, v := range map[string]uint64{"seen": n.Seen, "error": n.Errors, "delayed": n.Delayed, "aborted": n.Aborted, "opened": n.Opened} {
		total.WithLabelValues(outcome).Add(float64(v))
	}
}
