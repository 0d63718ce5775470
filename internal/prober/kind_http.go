package prober

import (
	"netemd/probe"
	"netemd/probe/http"
)

func init() {
	kinds[probe.KindHTTP] = func(o Order) (probe.Caller, error) {
		h := o.Request.WithDefaults().HTTP
		return &http.Probe{
			Address: o.Address, Version: h.Version, Method: h.Method, Path: h.Path, Bytes: h.Bytes,
			Keep: h.Keep, ReadTimeout: h.ReadTimeout, TLS: h.TLS,
		}, nil
	}
}
