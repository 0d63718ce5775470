package prober

import (
	"netemd/probe"
	"netemd/probe/tcp"
)

func init() {
	kinds[probe.KindTCP] = func(o Order) (probe.Caller, error) {
		t := o.Request.WithDefaults().TCP
		return &tcp.Probe{Address: o.Address, Mode: t.Mode, Bytes: t.Bytes, Keep: t.Keep}, nil
	}
}
