package prober

import (
	"fmt"
	"slices"

	"netemd/probe"
	"netemd/probe/policy"
)

// underPolicy puts the order's policy around a caller.
func (o Order) underPolicy(c probe.Caller) (probe.Caller, error) {
	if o.Policy == nil {
		return c, nil
	}
	p, err := policy.New(*o.Policy, c, policy.Options{
		Seed: o.Request.Seed, AttemptTimeout: o.Request.WithDefaults().Timeout, Unsafe: o.changes(),
	})
	if err != nil {
		return nil, fmt.Errorf("probe: policy: %w", err)
	}
	return p, nil
}

// changes reports whether a call may change something at its peer, so that it must not
// be made twice without a key.
func (o Order) changes() bool {
	switch r := o.Request.WithDefaults(); r.Kind {
	case probe.KindPostgres:
		return r.Postgres.Mode == "transaction"
	case probe.KindHTTP: // the safe methods of RFC 9110, 9.2.1
		return !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, r.HTTP.Method)
	}
	return false
}
