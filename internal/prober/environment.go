package prober

import (
	"context"

	"netemd/internal/evidence"
	"netemd/probe"
)

// environment is what decides the timers of TCP at both ends. What cannot be read is
// left out: it stops no measurement.
func (c Config) environment(ctx context.Context) probe.Environment {
	e := probe.Environment{Kernel: evidence.Kernel()}
	client, source, err := evidence.ReadTCP(ctx, c.ClientNamespace, c.Order.Address.Addr())
	if err != nil {
		return e
	}
	e.Client = &client
	if c.ServerNamespace == c.ClientNamespace || !source.IsValid() {
		return e
	}
	if server, _, err := evidence.ReadTCP(ctx, c.ServerNamespace, source); err == nil {
		e.Server = &server
	}
	return e
}

// made counts the connections that a call made.
func (f *flow) made(s probe.Sample) {
	if s.Made != nil {
		f.env.Connected(*s.Made)
	}
	for i := range s.Attempts {
		if m := s.Attempts[i].Made; m != nil {
			f.env.Connected(*m)
		}
	}
}
