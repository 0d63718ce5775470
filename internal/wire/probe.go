package wire

import (
	"time"

	netemv1 "netemd/api/netem/v1"
	"netemd/probe"
)

// ProbeRequest translates r for the agent; every sample is asked for.
func ProbeRequest(r probe.Request) *netemv1.ProbeRequest {
	return &netemv1.ProbeRequest{
		Kind: r.Kind, Target: r.Target, Layer: r.Layer, Count: int32(r.Count), Concurrency: int32(r.Concurrency), PaceNs: int64(r.Pace),
		TimeoutNs: int64(r.Timeout), Samples: true,
	}
}

// ProbeRequestOf translates a request.
func ProbeRequestOf(m *netemv1.ProbeRequest) probe.Request {
	return probe.Request{
		Kind: m.GetKind(), Target: m.GetTarget(), Layer: m.GetLayer(), Count: int(m.GetCount()), Concurrency: int(m.GetConcurrency()), Pace: time.Duration(m.GetPaceNs()),
		Timeout: time.Duration(m.GetTimeoutNs()),
	}
}
