package plan

import (
	"netemd/probe"
)

// request is what the keys ask for.
func (l load) request() probe.Request {
	r := probe.Request{
		Kind: l.Probe, Target: l.Target, Layer: l.Layer, Concurrency: l.Concurrency, Timeout: l.Timeout, Threshold: l.Slow,
	}
	if r.Kind == "" {
		r.Kind = probe.KindPostgres
	}
	if l.Pace != nil {
		if r.Pace = *l.Pace; r.Pace == 0 {
			r.Pace = probe.NoPace
		}
	}
	if l.Rate > 0 {
		r.Open = &probe.OpenLoop{Stages: []probe.Stage{{From: float64(l.Rate), To: float64(l.Rate)}}, Poisson: l.Arrival == "poisson"}
	}
	keep := l.Keep != nil && *l.Keep
	switch r.Kind {
	case probe.KindPostgres:
		r.Postgres = probe.PostgresOptions{Mode: l.Mode, Query: l.Query, Write: l.Write, Idempotent: l.Idempotent}
		if l.Pool != nil {
			r.Postgres.Pool = *l.Pool
		}
	case probe.KindTCP:
		r.TCP = probe.TCPOptions{Mode: l.Mode, Bytes: int(l.Bytes), Keep: keep}
	case probe.KindUDP:
		r.UDP = probe.UDPOptions{Bytes: int(l.Bytes)}
	case probe.KindHTTP:
		r.HTTP = probe.HTTPOptions{Version: l.HTTP, Method: l.Method, Path: l.Path, Bytes: int(l.Bytes), Keep: keep, ReadTimeout: l.ReadTimeout}
	case probe.KindGRPC:
		r.GRPC = probe.GRPCOptions{Mode: l.Mode, Messages: l.Messages, Bytes: int(l.Bytes)}
	}
	return r
}
