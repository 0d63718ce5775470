package report

import (
	"math"
	"math/rand/v2"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/probe"
)

// fixture is a comparison with the shape of a real one, the same on every run.
func fixture() experiment.Comparison {
	draw := rand.New(rand.NewPCG(7, 77))
	base := func() float64 { return 6 * math.Exp(0.25*draw.NormFloat64()) }
	lossy := func() (float64, probe.Cause) {
		ms, cause := base(), probe.Cause("")
		if draw.Float64() < 0.2 {
			ms, cause = ms+1030, probe.SYNRetransmit
			if draw.Float64() < 0.2 {
				ms += 1010
			}
		}
		for range 4 {
			if draw.Float64() >= 0.2 {
				continue
			}
			if draw.Float64() < 0.55 {
				ms += 207 + 10*draw.Float64()
				cause = stronger(cause, probe.TLP)
				continue
			}
			ms += 210 * math.Pow(2, float64(draw.IntN(3)))
			cause = stronger(cause, probe.RTO)
		}
		return ms, cause
	}
	c := experiment.Comparison{
		Target: "pg", Asked: "loss 20% to pg", Kind: probe.KindPostgres, Calls: "a new connection and one prepared query", Engine: fault.EBPF, EngineReason: "this kernel has no sch_netem",
		Direction: fault.To, Placement: []string{"egress of server in netem-pg-wire"}, Count: 200, Concurrency: 4,
		TimeoutMS: 5000, Conclusive: true, Reasons: []string{},
		Warnings: []string{"seed 7 is not repeated across restarts of the agent"},
		Latency:  &experiment.Latency{AddedMS: 43, Turns: 4.98, CalibrationCalls: 20, CalibrationMS: 43},
		Environment: experiment.Environment{
			Kernel: "6.18.5", AgentVersion: "v0.1.0", ClientVersion: "v0.1.0", GoVersion: "go1.26.8", Arch: "amd64", CPUs: 2,
		},
		Started: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Ended: time.Date(2026, 3, 1, 12, 0, 52, 0, time.UTC),
	}
	plain := func() (float64, probe.Cause) { return base(), "" }
	proxied := func() (float64, probe.Cause) { return base() + 0.8, "" }
	late := func() (float64, probe.Cause) { return 5*43 + base() + 3*draw.Float64(), probe.Queueing }
	loss := experiment.MeasureLoss(20, 0, 3121, 633)
	c.Rows = []experiment.Row{
		row(experiment.LayerNone, plain, experiment.Row{Fault: "none"}),
		row(experiment.LayerPacket, lossy, experiment.Row{
			Engine: fault.EBPF, Fault: c.Asked, FaultID: "f1", State: fault.Active, Loss: &loss,
			Counters: &experiment.Counters{Seen: 3121, Lost: 633},
		}),
		row(experiment.LayerProxy, proxied, experiment.Row{Fault: "none"}),
		row(experiment.LayerProxyLatency, late, experiment.Row{Engine: fault.Stream, Fault: "latency 43ms downstream"}),
	}
	return c
}

func stronger(a, b probe.Cause) probe.Cause {
	if a == probe.SYNRetransmit || a == probe.RTO {
		return a
	}
	return b
}

func row(layer string, draw func() (float64, probe.Cause), r experiment.Row) experiment.Row {
	for i := range 200 {
		ms, cause := draw()
		s := probe.Sample{Seq: i, StartNS: int64(i) * 1e6, Class: probe.OK}
		if ms > 5000 {
			ms, s.Class, s.Error = 5000, probe.Timeout, "context deadline exceeded"
		}
		s.EndNS = s.StartNS + int64(ms*1e6)
		if s.Duration() > probe.SlowThreshold {
			s.Cause = cause
			if cause != probe.Queueing {
				s.Events = []probe.Retransmission{{Cause: cause}}
			}
		}
		r.Samples = append(r.Samples, s)
	}
	r.Summary = probe.Summarize("pg", layer, r.Samples, probe.EvidenceTraced)
	return r
}
