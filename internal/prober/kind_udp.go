package prober

import (
	"netemd/probe"
	"netemd/probe/udp"
)

func init() {
	kinds[probe.KindUDP] = func(o Order) (probe.Caller, error) {
		return &udp.Probe{Address: o.Address, Bytes: o.Request.WithDefaults().UDP.Bytes}, nil
	}
}
