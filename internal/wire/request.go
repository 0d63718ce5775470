package wire

import (
	"time"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/qdisc"
)

func request(r *fault.Request) *netemv1.RequestFault {
	if r == nil {
		return nil
	}
	m := &netemv1.RequestFault{
		ErrorPercent: float64(r.Error), DelayPercent: float64(r.Delay), AbortPercent: float64(r.Abort),
		Status: int32(r.Status), Code: r.Code, RetryAfterNs: int64(r.RetryAfter), PushbackNs: int64(r.Pushback),
		DelayNs: int64(r.Latency), JitterNs: int64(r.Jitter), Method: r.Method, Path: r.Path, Seed: r.Seed,
	}
	for _, h := range r.Headers {
		m.Headers = append(m.Headers, &netemv1.RequestHeader{Name: h.Name, Value: h.Value})
	}
	return m
}

func requestOf(m *netemv1.RequestFault) *fault.Request {
	if m == nil {
		return nil
	}
	r := &fault.Request{
		Error: qdisc.Percent(m.GetErrorPercent()), Delay: qdisc.Percent(m.GetDelayPercent()), Abort: qdisc.Percent(m.GetAbortPercent()),
		Status: int(m.GetStatus()), Code: m.GetCode(), RetryAfter: time.Duration(m.GetRetryAfterNs()), Pushback: time.Duration(m.GetPushbackNs()),
		Latency: time.Duration(m.GetDelayNs()), Jitter: time.Duration(m.GetJitterNs()), Method: m.GetMethod(), Path: m.GetPath(), Seed: m.GetSeed(),
	}
	for _, h := range m.GetHeaders() {
		r.Headers = append(r.Headers, fault.Header{Name: h.GetName(), Value: h.GetValue()})
	}
	return r
}
