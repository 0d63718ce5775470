package policy

import (
	"context"
	"testing"
	"time"

	"netemd/probe"
)

// What a call costs through policies that do nothing because all is well, beside the
// inner call alone.
func BenchmarkCall(b *testing.B) {
	inner := callerFunc(func(context.Context, int) probe.Sample { return probe.Sample{Class: probe.OK} })
	all := Policy{
		CallTimeout: time.Second, AttemptTimeout: time.Second, Retry: &Retry{}, Budget: &Budget{}, Breaker: &Breaker{Ratio: 0.5},
		Bulkhead: &Bulkhead{Concurrent: 1000}, Fallback: &Fallback{}, Deadline: &Deadline{}, Idempotency: &Idempotency{},
	}
	hedged := all
	hedged.Hedge = &Hedge{Delay: time.Second, Percentile: 0.95}
	for _, c := range []struct {
		name string
		p    Policy
	}{
		{"none", Policy{}}, {"timeout", Policy{AttemptTimeout: time.Second}}, {"retry", Policy{Retry: &Retry{}}}, {"breaker", Policy{Breaker: &Breaker{}}},
		{"all_but_hedge", all}, {"all", hedged},
	} {
		k, err := New(c.p, inner, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			ctx := context.Background()
			for i := 0; b.Loop(); i++ {
				if s := k.Call(ctx, i); s.Class != probe.OK {
					b.Fatal(s.Error)
				}
			}
		})
	}
	b.Run("inner", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			inner.Call(context.Background(), i)
		}
	})
}
