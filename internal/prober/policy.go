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
	if err := o.repeated(); err != nil {
		return nil, fmt.Errorf("probe: policy: %w", err)
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
		return r.Postgres.Write && !r.Postgres.Idempotent
	case probe.KindHTTP: // the safe methods of RFC 9110, 9.2.1
		return !slices.Contains([]string{"GET", "HEAD", "OPTIONS", "TRACE"}, r.HTTP.Method)
	}
	return false
}

// repeated refuses a policy that may make a query twice that writes, unless the user says that
// it may be. A PostgreSQL has no idempotency keys, so none helps.
func (o Order) repeated() error {
	r := o.Request.WithDefaults()
	if r.Kind != probe.KindPostgres || !o.changes() {
		return nil
	}
	want := "idempotent beside write, for a query that may be made more than once, or a policy without it"
	switch p := o.Policy.WithDefaults(); {
	case p.Retry != nil && p.Retry.MaxAttempts > 1:
		return &probe.RequestError{Field: "retry", Value: "on a query that writes", Want: want}
	case p.Hedge != nil:
		return &probe.RequestError{Field: "hedge", Value: "on a query that writes", Want: want}
	}
	return nil
}
