package prober

import (
	"netemd/probe"
	"netemd/probe/grpc"
)

func init() {
	kinds[probe.KindGRPC] = func(o Order) (probe.Caller, error) {
		g := o.Request.WithDefaults().GRPC
		return &grpc.Probe{Address: o.Address, Mode: g.Mode, Messages: g.Messages, Bytes: g.Bytes, New: g.New}, nil
	}
}
