package policy

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// tiers are clients one behind the other, each with the policy; the last one's peer fails.
func tiers(t *testing.T, n int, p Policy, clock Clock) (first probe.Caller, hits *int) {
	t.Helper()
	hits = new(int)
	first = callerFunc(func(context.Context, int) probe.Sample {
		*hits++
		return probe.Sample{Class: probe.Server, Error: "503"}
	})
	for range n {
		k, err := New(p, first, Options{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		first = k
	}
	return first, hits
}

// Three tiers with three attempts each multiply a failure by 27; a budget of 10 % in each keeps
// it near 1.
func TestRetriesMultiplyAndABudgetDoesNot(t *testing.T) {
	const calls = 30
	user, hits := tiers(t, 3, Policy{Retry: &Retry{MaxAttempts: 3}}, NewFakeClock())
	for i := range calls {
		user.Call(t.Context(), i)
	}
	if *hits != 27*calls {
		t.Errorf("%d hits without a budget, want exactly %d", *hits, 27*calls)
	}
	user, hits = tiers(t, 3, Policy{Retry: &Retry{MaxAttempts: 3}, Budget: &Budget{Ratio: 0.1, MaxTokens: 10}}, NewFakeClock())
	for i := range calls {
		user.Call(t.Context(), i)
	}
	// Tier by tier: at most 10 tokens at first and a tenth of what comes in; each tier's
	// attempts are the next one's calls.
	bound := calls
	for range 3 {
		bound += 10 + bound/10
	}
	if *hits < calls || *hits > bound || *hits > 100 {
		t.Errorf("%d hits with a budget, want %d..%d", *hits, calls, min(bound, 100))
	}
}

// A peer hangs for 8 s and is healthy then. A client with a timeout of 300 ms and a pause of
// 50 ms asks it for 14 s. With a breaker (5 in a row, 2 s, one probe) as many calls time out
// as it takes to open it, and one for each failed probe.
func TestABreakerSavesTimeouts(t *testing.T) {
	for _, c := range []struct {
		name     string
		policy   Policy
		timeouts int
		opened   []time.Duration
		closed   time.Duration
	}{
		// 23 calls of 350 ms begin before 8 s.
		{"without", Policy{AttemptTimeout: 300 * ms}, 23, nil, 0},
		// The fifth ends at 5 x 300 + 4 x 50 = 1.7 s. Rejected calls take no time, so that calls
		// begin every 50 ms: the first probe at 3.7 s fails at 4 s, the second at 6 s fails
		// at 6.3 s, and the third at 8.3 s succeeds.
		{"with", Policy{AttemptTimeout: 300 * ms, Breaker: &Breaker{Consecutive: 5, Open: 2 * time.Second}}, 7,
			[]time.Duration{1700 * ms, 4 * time.Second, 6300 * ms}, 8301 * ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			clock := NewFakeClock()
			clock.Settle = synctest.Wait
			began := clock.Now()
			inner := callerFunc(func(ctx context.Context, seq int) probe.Sample {
				wait := ms
				if clock.Now()-began < int64(8*time.Second) {
					wait = time.Hour
				}
				s := probe.Sample{Seq: seq, Class: probe.OK}
				if !rest(ctx, clock, wait) {
					s.Class = probe.Timeout
				}
				return s
			})
			k, err := New(c.policy, inner, Options{Clock: clock})
			if err != nil {
				t.Fatal(err)
			}
			var samples []probe.Sample
			go func() {
				for i := 0; clock.Now()-began < int64(14*time.Second); i++ {
					samples = append(samples, k.Call(context.Background(), i))
					rest(context.Background(), clock, 50*ms)
				}
			}()
			clock.Run()
			timeouts, opens := 0, []time.Duration(nil)
			var closes time.Duration
			for _, s := range samples {
				if s.Class == probe.Timeout {
					timeouts++
				}
				for _, e := range s.Policy {
					switch e.Event {
					case opened:
						opens = append(opens, time.Duration(e.TimeNS-began))
					case closed:
						closes = time.Duration(e.TimeNS - began)
					}
				}
			}
			if timeouts != c.timeouts || closes != c.closed || len(opens) != len(c.opened) {
				t.Fatalf("%s: %d timeouts, opened %v, closed %s", c.name, timeouts, opens, closes)
			}
			for i, at := range c.opened {
				if opens[i] != at {
					t.Errorf("%s: opened at %s, want %s", c.name, opens[i], at)
				}
			}
		})
	}
}
