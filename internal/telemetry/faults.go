package telemetry

import (
	"runtime"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"netemd/internal/fault"
	"netemd/internal/version"
)

// carrier is what faults are told apart by: a handful of pairs, whatever is asked for.
type carrier struct{ engine, kind string }

// carriers are those that exist; each is shown from the beginning, since a rate needs one.
var carriers = []carrier{
	{string(fault.Netem), "packet"}, {string(fault.EBPF), "packet"}, {string(fault.EBPF), "content"}, {string(fault.Stream), "stream"},
	{string(fault.Process), "outage"},
	{string(fault.Application), "request"},
}

func carrierOf(f fault.Fault) carrier {
	switch {
	case f.Spec.Content != nil:
		return carrier{string(f.Engine), "content"}
	case f.Spec.Outage != nil:
		return carrier{string(f.Engine), "outage"}
	case len(f.Spec.Toxics) > 0:
		return carrier{string(f.Engine), "stream"}
	case f.Spec.Request != nil:
		return carrier{string(f.Engine), "request"}
	}
	return carrier{string(f.Engine), "packet"}
}

var (
	states = []fault.State{fault.Active, fault.Lost, fault.Drifted}
	events = []string{"applied", "changed", "renewed", "expired", "cleared", "lost", "drifted", "repaired", "reattached"}
)

// faults counts what happens to faults, and to their packets. It is a
// prometheus.Collector, which asks for the faults that are held when it is asked.
type faults struct {
	cfg     Config
	events  *prometheus.CounterVec
	packets *packets

	held, queued   *prometheus.Desc
	holds, waiting *prometheus.Desc

	// mu is held while the held faults are asked for, so that none that ends meanwhile is
	// counted twice.
	mu sync.Mutex
}

func newFaults(cfg Config) *faults {
	by := []string{"engine", "kind"}
	f := &faults{
		cfg: cfg,
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "netemd_fault_events_total", Help: "What happened to faults: applied, changed, renewed, expired, cleared, lost, drifted, repaired or reattached.",
		}, append([]string{"event"}, by...)),
		packets: newPackets(),
		held:    prometheus.NewDesc("netemd_faults", "Faults that are held, by what the last look at the kernel found.", append([]string{"state"}, by...), nil),
		queued:  prometheus.NewDesc("netemd_packets_queued", "Packets that faults hold back now.", by, nil),
		holds:   prometheus.NewDesc("netemd_holds", "Faults that end with the client which holds them.", nil, nil),
		waiting: prometheus.NewDesc("netemd_applies_waiting", "Calls that wait for the end of another fault.", nil, nil),
	}
	for _, c := range carriers {
		for _, e := range events {
			f.events.WithLabelValues(e, c.engine, c.kind)
		}
	}
	return f
}

func (f *faults) observe(e fault.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := carrierOf(e.Fault)
	f.events.WithLabelValues(e.Kind, c.engine, c.kind).Inc()
	f.packets.observe(e)
}

// Describe is prometheus.Collector's.
func (f *faults) Describe(ch chan<- *prometheus.Desc) {
	f.events.Describe(ch)
	f.packets.total.Describe(ch)
	f.packets.requests.Describe(ch)
	for _, d := range []*prometheus.Desc{f.held, f.queued, f.holds, f.waiting} {
		ch <- d
	}
}

// Collect is prometheus.Collector's.
func (f *faults) Collect(ch chan<- prometheus.Metric) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []fault.Fault
	if f.cfg.Collect != nil {
		all = f.cfg.Collect()
	}
	waiting := 0
	if f.cfg.Waiting != nil {
		waiting = f.cfg.Waiting()
	}
	f.packets.look(all)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	held, queued, holds := map[carrier]map[fault.State]int{}, map[carrier]uint64{}, 0
	for _, c := range carriers {
		held[c], queued[c] = map[fault.State]int{}, 0
		for _, s := range states {
			held[c][s] = 0
		}
	}
	for _, x := range all {
		c := carrierOf(x)
		if held[c] == nil {
			held[c] = map[fault.State]int{}
		}
		held[c][x.State]++
		queued[c] += x.Queued
		if x.Token != 0 {
			holds++
		}
	}
	for c, by := range held {
		for s, n := range by {
			gauge(f.held, float64(n), string(s), c.engine, c.kind)
		}
		gauge(f.queued, float64(queued[c]), c.engine, c.kind)
	}
	gauge(f.holds, float64(holds))
	gauge(f.waiting, float64(waiting))
	f.events.Collect(ch)
	f.packets.total.Collect(ch)
	f.packets.requests.Collect(ch)
}

// buildInfo is 1, by what this build is.
func buildInfo() prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "netemd_build_info", Help: "1, by the version of netemd and of the Go that built it.",
		ConstLabels: prometheus.Labels{"version": version.String(), "goversion": runtime.Version()},
	})
	g.Set(1)
	return g
}
