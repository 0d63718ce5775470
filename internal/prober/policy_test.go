package prober

import (
	"errors"
	"testing"

	"netemd/probe"
	"netemd/probe/policy"
)

// What may change something is neither retried nor hedged, unless the user says that it may
// be made more than once.
func TestPolicyOfQueriesThatWrite(t *testing.T) {
	retry := policy.Policy{Retry: &policy.Retry{}}
	hedge := policy.Policy{Hedge: &policy.Hedge{Delay: 1e6}}
	keyed := policy.Policy{Hedge: hedge.Hedge, Idempotency: &policy.Idempotency{}}
	breaker := policy.Policy{Breaker: &policy.Breaker{}}
	read := probe.PostgresOptions{Mode: "query", Query: "select f()"}
	write, twice := read, read
	write.Write = true
	twice.Write, twice.Idempotent = true, true
	for _, test := range []struct {
		name  string
		p     policy.Policy
		o     probe.PostgresOptions
		field string // of the refusal; empty: none
	}{
		{"the server refuses writes: retried", retry, read, ""},
		{"the server refuses writes: hedged", hedge, read, ""},
		{"a transaction that reads", hedge, probe.PostgresOptions{Mode: "transaction"}, ""},
		{"writes, once", breaker, write, ""},
		{"writes, one attempt", policy.Policy{Retry: &policy.Retry{MaxAttempts: 1}}, write, ""},
		{"writes, retried", retry, write, "retry"},
		{"writes, hedged", hedge, write, "hedge"},
		{"writes, with a key that no PostgreSQL reads", keyed, write, "hedge"},
		{"may be made twice: retried", retry, twice, ""},
		{"may be made twice: hedged", hedge, twice, ""},
	} {
		o := Order{Policy: &test.p, Request: probe.Request{Kind: probe.KindPostgres, Postgres: test.o}}
		_, err := o.underPolicy(nil)
		refusal, ok := errors.AsType[*probe.RequestError](err)
		if ok != (test.field != "") || ok && refusal.Field != test.field || err != nil && !ok {
			t.Errorf("%s: %v, want a refusal of %q", test.name, err, test.field)
		}
	}
}
