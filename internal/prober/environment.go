package prober

import (
	"context"

	"netemd/internal/evidence"
	"netemd/probe"
)

// environment is what decides the timers of TCP at both ends, and enters their next hops. What cannot be read is
// left out: it stops no measurement.
func (c Config) environment(ctx context.Context, a *probe.Attribution) probe.Environment {
	e := probe.Environment{Kernel: evidence.Kernel()}
	client, err := evidence.ReadTCP(ctx, c.ClientNamespace, c.Order.Address.Addr())
	if err != nil {
		return e
	}
	e.Client, a.ClientHop = &client.TCP, client.Hop
	if c.ServerNamespace == c.ClientNamespace || !client.Source.IsValid() {
		return e
	}
	if server, err := evidence.ReadTCP(ctx, c.ServerNamespace, client.Source); err == nil {
		e.Server, a.ServerHop = &server.TCP, server.Hop
	}
	return e
}

// made counts the connections that a call made.
func (f *flow) made(s probe.Sample) {
	if s.Made != nil && len(s.Attempts) == 0 { // else it is that of one of its attempts
		f.env.Connected(*s.Made)
	}
	for i := range s.Attempts {
		if m := s.Attempts[i].Made; m != nil {
			f.env.Connected(*m)
		}
	}
}
