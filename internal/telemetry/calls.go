package telemetry

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	netemv1 "netemd/api/netem/v1"
)

// results are the words for what became of a call, as the agent's errors have codes. Any
// other code is an "error".
var results = map[codes.Code]string{
	codes.OK: "ok", codes.InvalidArgument: "invalid", codes.NotFound: "unknown", codes.FailedPrecondition: "conflict",
	codes.ResourceExhausted: "busy", codes.Unimplemented: "unsupported", codes.OutOfRange: "missed",
	codes.PermissionDenied: "denied", codes.Canceled: "canceled", codes.DeadlineExceeded: "timeout",
}

func resultOf(err error) string {
	if r, ok := results[status.Code(err)]; ok {
		return r
	}
	return "error"
}

// methods are those of the API, "Faults/Apply"; what else a peer may name is "other", so
// that nobody can make series without end.
var methods = func() map[string]string {
	m := map[string]string{}
	for _, s := range []grpc.ServiceDesc{
		netemv1.Faults_ServiceDesc, netemv1.Targets_ServiceDesc, netemv1.Labs_ServiceDesc,
		netemv1.Probes_ServiceDesc, netemv1.System_ServiceDesc,
	} {
		short := s.ServiceName[strings.LastIndexByte(s.ServiceName, '.')+1:]
		for _, d := range s.Methods {
			m["/"+s.ServiceName+"/"+d.MethodName] = short + "/" + d.MethodName
		}
		for _, d := range s.Streams {
			m["/"+s.ServiceName+"/"+d.StreamName] = short + "/" + d.StreamName
		}
	}
	return m
}()

// The methods that make a fault, and the one that watches.
const (
	applyMethod = "Faults/Apply"
	holdMethod  = "Faults/Hold"
	watchMethod = "Faults/Watch"
)

func methodOf(full string) string {
	if m, ok := methods[full]; ok {
		return m
	}
	return "other"
}

// calls counts the calls of a gRPC server. It is a stats.Handler and a
// prometheus.Collector.
type calls struct {
	total      *prometheus.CounterVec
	inProgress *prometheus.GaugeVec
	applied    *prometheus.HistogramVec
	watchers   prometheus.GaugeFunc
	watching   atomic.Int64
}

func newCalls() *calls {
	c := &calls{
		total: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "netemd_calls_total", Help: "Calls that ended, by method and by what became of them.",
		}, []string{"method", "result"}),
		inProgress: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "netemd_calls_in_progress", Help: "Calls that have not ended, by method; of Faults/Hold these are the clients that hold a fault.",
		}, []string{"method"}),
		applied: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "netemd_apply_duration_seconds",
			Help: "Time from the call until a fault was acknowledged or refused, by Apply or Hold, with the time that it waited for another's end.",
			// From the fastest engine over a busy machine to the longest wait that is usual.
			Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10, 60},
		}, []string{"method", "result"}),
	}
	c.watchers = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "netemd_watchers", Help: "Clients that watch what happens to the faults.",
	}, func() float64 { return float64(c.watching.Load()) })
	for _, m := range []string{applyMethod, holdMethod} { // a rate needs a beginning
		c.total.WithLabelValues(m, "ok")
		c.applied.WithLabelValues(m, "ok")
	}
	return c
}

// Describe is prometheus.Collector's.
func (c *calls) Describe(ch chan<- *prometheus.Desc) {
	each(ch, c.parts(), prometheus.Collector.Describe)
}

// Collect is prometheus.Collector's.
func (c *calls) Collect(ch chan<- prometheus.Metric) {
	each(ch, c.parts(), prometheus.Collector.Collect)
}

func (c *calls) parts() []prometheus.Collector {
	return []prometheus.Collector{c.total, c.inProgress, c.applied, c.watchers}
}

func each[T any](ch chan<- T, parts []prometheus.Collector, f func(prometheus.Collector, chan<- T)) {
	for _, p := range parts {
		f(p, ch)
	}
}

// call is one of them.
type call struct {
	method string
	begun  time.Time
	// acknowledged says that a Hold's fault has been, while the stream goes on.
	acknowledged atomic.Bool
}

type callKey struct{}

// TagRPC is stats.Handler's.
func (c *calls) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, &call{method: methodOf(info.FullMethodName), begun: time.Now()})
}

// HandleRPC is stats.Handler's.
func (c *calls) HandleRPC(ctx context.Context, s stats.RPCStats) {
	this, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.Begin:
		c.goesOn(this, 1)
	case *stats.OutPayload:
		// A Hold lasts as long as its client; its apply is over with the first fault.
		if m, ok := s.Payload.(*netemv1.HoldResponse); ok && m.GetFault() != nil && this.acknowledged.CompareAndSwap(false, true) {
			c.applied.WithLabelValues(this.method, "ok").Observe(time.Since(this.begun).Seconds())
		}
	case *stats.End:
		c.goesOn(this, -1)
		result := resultOf(s.Error)
		c.total.WithLabelValues(this.method, result).Inc()
		if this.method == applyMethod || this.method == holdMethod && !this.acknowledged.Load() {
			c.applied.WithLabelValues(this.method, result).Observe(time.Since(this.begun).Seconds())
		}
	}
}

func (c *calls) goesOn(this *call, more int64) {
	c.inProgress.WithLabelValues(this.method).Add(float64(more))
	if this.method == watchMethod {
		c.watching.Add(more)
	}
}

// TagConn is stats.Handler's.
func (c *calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn is stats.Handler's.
func (c *calls) HandleConn(context.Context, stats.ConnStats) {}
