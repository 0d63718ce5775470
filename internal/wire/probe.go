package wire

import (
	"time"

	netemv1 "netemd/api/netem/v1"
	"netemd/probe"
)

// ProbeRequest translates r for the agent. What is nobody's option stays out of the
// message, so that the agent sees the same request.
func ProbeRequest(r probe.Request) *netemv1.ProbeRequest {
	m := &netemv1.ProbeRequest{
		Kind: r.Kind, Target: r.Target, Layer: r.Layer, Count: int32(r.Count), Concurrency: int32(r.Concurrency), PaceNs: int64(r.Pace),
		TimeoutNs: int64(r.Timeout), DurationNs: int64(r.Duration), WarmupNs: int64(r.Warmup), ThresholdNs: int64(r.Threshold), Seed: r.Seed,
	}
	if o := r.Open; o != nil {
		m.Open = &netemv1.OpenLoop{Poisson: o.Poisson, MaxInFlight: int32(o.MaxInFlight)}
		for _, s := range o.Stages {
			m.Open.Stages = append(m.Open.Stages, &netemv1.LoadStage{ForNs: int64(s.For), FromPerSecond: s.From, ToPerSecond: s.To})
		}
	}
	if o := r.Postgres; o != (probe.PostgresOptions{}) {
		m.Postgres = &netemv1.ProbePostgres{Mode: o.Mode, Pool: int32(o.Pool), Query: o.Query, Write: o.Write, Idempotent: o.Idempotent}
	}
	if o := r.TCP; o != (probe.TCPOptions{}) {
		m.Tcp = &netemv1.ProbeTCP{Mode: o.Mode, Bytes: int64(o.Bytes), Keep: o.Keep}
	}
	if o := r.UDP; o != (probe.UDPOptions{}) {
		m.Udp = &netemv1.ProbeUDP{Bytes: int32(o.Bytes)}
	}
	if o := r.HTTP; o != (probe.HTTPOptions{}) {
		m.Http = &netemv1.ProbeHTTP{
			Version: o.Version, Method: o.Method, Path: o.Path, Bytes: int64(o.Bytes), Keep: o.Keep, ReadTimeoutNs: int64(o.ReadTimeout), Tls: o.TLS,
		}
	}
	if o := r.GRPC; o != (probe.GRPCOptions{}) {
		m.Grpc = &netemv1.ProbeGRPC{Mode: o.Mode, Messages: int32(o.Messages), Bytes: int32(o.Bytes), New: o.New}
	}
	return m
}

// ProbeRequestOf translates a request.
func ProbeRequestOf(m *netemv1.ProbeRequest) probe.Request {
	r := probe.Request{
		Kind: m.GetKind(), Target: m.GetTarget(), Layer: m.GetLayer(), Count: int(m.GetCount()), Concurrency: int(m.GetConcurrency()),
		Pace: time.Duration(m.GetPaceNs()), Timeout: time.Duration(m.GetTimeoutNs()), Duration: time.Duration(m.GetDurationNs()),
		Warmup: time.Duration(m.GetWarmupNs()), Threshold: time.Duration(m.GetThresholdNs()), Seed: m.GetSeed(),
		Postgres: probe.PostgresOptions{
			Mode: m.GetPostgres().GetMode(), Pool: int(m.GetPostgres().GetPool()), Query: m.GetPostgres().GetQuery(),
			Write: m.GetPostgres().GetWrite(), Idempotent: m.GetPostgres().GetIdempotent(),
		},
		TCP: probe.TCPOptions{Mode: m.GetTcp().GetMode(), Bytes: int(m.GetTcp().GetBytes()), Keep: m.GetTcp().GetKeep()},
		UDP: probe.UDPOptions{Bytes: int(m.GetUdp().GetBytes())},
		GRPC: probe.GRPCOptions{
			Mode: m.GetGrpc().GetMode(), Messages: int(m.GetGrpc().GetMessages()), Bytes: int(m.GetGrpc().GetBytes()), New: m.GetGrpc().GetNew(),
		},
	}
	if o := m.GetHttp(); o != nil {
		r.HTTP = probe.HTTPOptions{
			Version: o.GetVersion(), Method: o.GetMethod(), Path: o.GetPath(), Bytes: int(o.GetBytes()), Keep: o.GetKeep(),
			ReadTimeout: time.Duration(o.GetReadTimeoutNs()), TLS: o.GetTls(),
		}
	}
	if o := m.GetOpen(); o != nil {
		r.Open = &probe.OpenLoop{Poisson: o.GetPoisson(), MaxInFlight: int(o.GetMaxInFlight())}
		for _, s := range o.GetStages() {
			r.Open.Stages = append(r.Open.Stages, probe.Stage{For: time.Duration(s.GetForNs()), From: s.GetFromPerSecond(), To: s.GetToPerSecond()})
		}
	}
	return r
}

// ProbeProgress translates how far a run is. offset is what makes Unix time of the
// samples' clock.
func ProbeProgress(p probe.Progress, offset time.Duration) *netemv1.ProbeMessage {
	return &netemv1.ProbeMessage{
		Done: int32(p.Done), Failed: int32(p.Failed), Count: int32(p.Count), ElapsedNs: int64(p.Elapsed), P50Ms: p.P50, P99Ms: p.P99,
		UnixOffsetNs: int64(offset),
	}
}

// ProbeProgressOf translates how far a run is.
func ProbeProgressOf(m *netemv1.ProbeMessage) probe.Progress {
	return probe.Progress{
		Done: int(m.GetDone()), Failed: int(m.GetFailed()), Count: int(m.GetCount()), Elapsed: time.Duration(m.GetElapsedNs()), P50: m.P50Ms, P99: m.P99Ms,
	}
}
