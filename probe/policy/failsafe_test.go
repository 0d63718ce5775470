package policy

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go"
	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/failsafe-go/failsafe-go/timeout"

	"netemd/probe"
)

// bubble is the time of a synctest bubble, which failsafe-go's clock is, too.
type bubble struct{ Real }

func (bubble) Now() int64 { return time.Now().UnixNano() }

// On random courses of attempts that follow one another, the breaker lets through what
// failsafe-go's does.
func TestBreakerAgreesWithFailsafe(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	transitions := 0
	for range 400 {
		synctest.Test(t, func(t *testing.T) {
			b := Breaker{Open: time.Duration(1+random.IntN(5)) * time.Second, Probes: 1 + random.IntN(4)}
			b.Successes = 1 + random.IntN(b.Probes)
			build := circuitbreaker.NewBuilder[any]().WithDelay(b.Open).WithSuccessThresholdRatio(uint(b.Successes), uint(b.Probes))
			if random.IntN(2) == 0 {
				b.Consecutive = 1 + random.IntN(6)
				build.WithFailureThreshold(uint(b.Consecutive))
			} else {
				b.MinCalls, b.Period = 1+random.IntN(10), time.Duration(1+random.IntN(10))*time.Second
				rate := float64(1+random.IntN(9)) / 10
				b.Ratio = rate - 0.005 // it rounds rates to whole percents
				build.WithFailureRateThreshold(rate, uint(b.MinCalls), b.Period)
			}
			theirs, ours := build.Build(), newBreaker(*Policy{Breaker: &b}.WithDefaults().Breaker, bubble{})
			none := func(probe.PolicyEvent) {}
			sick := random.IntN(2) == 0
			for i := range 200 {
				if random.IntN(10) == 0 {
					sick = !sick
				}
				time.Sleep(time.Duration(random.IntN(700)) * time.Millisecond)
				before := ours.state
				want := theirs.TryAcquirePermit()
				ticket, got := ours.acquire(none)
				if got != want {
					t.Fatalf("%+v, attempt %d: let through %t, and by failsafe %t", b, i, got, want)
				}
				if got {
					if failed := sick != (random.IntN(5) == 0); failed {
						theirs.RecordFailure()
						ours.record(ticket, failure, none)
					} else {
						theirs.RecordSuccess()
						ours.record(ticket, success, none)
					}
				}
				if before != ours.state {
					transitions++
				}
				if theirs.State().String() != ours.state.String() {
					t.Fatalf("%+v, attempt %d: %s, and by failsafe %s", b, i, ours.state, theirs.State())
				}
			}
		})
	}
	if transitions < 2000 {
		t.Errorf("%d changes of state were compared", transitions)
	}
}

// What of failsafe-go's is not used, and why. When this test fails with a newer version, the
// package's documentation is out of date, and so may be some of our own code.
func TestWhatFailsafeDoesOtherwise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := func() circuitbreaker.CircuitBreaker[any] {
			b := circuitbreaker.NewBuilder[any]().WithFailureThreshold(1).WithDelay(time.Second).WithSuccessThreshold(1).Build()
			for range 3 { // three attempts under way, of which one fails
				b.TryAcquirePermit()
			}
			b.RecordFailure()
			time.Sleep(time.Second)
			return b
		}
		b := open()
		if !b.TryAcquirePermit() || b.TryAcquirePermit() {
			t.Error("half-open lets one through")
		}
		b.RecordSuccess() // of one of the three
		if b.IsHalfOpen() {
			t.Error("a late success does not close it any more")
		}
		b = open()
		b.TryAcquirePermit()
		b.RecordFailure() // of one of the three
		if b.IsHalfOpen() {
			t.Error("a late failure does not open it any more")
		}

		b = circuitbreaker.NewBuilder[any]().WithFailureThreshold(1).WithDelay(time.Second).WithSuccessThresholdRatio(2, 3).Build()
		b.RecordFailure()
		time.Sleep(time.Second)
		through := 0
		for b.TryAcquirePermit() {
			through++
		}
		b.RecordSuccess()
		for b.TryAcquirePermit() {
			through++
		}
		if through != 4 {
			t.Errorf("half-open with three probes lets %d through", through)
		}

		var inside context.Context
		_, _ = failsafe.With[any](timeout.New[any](time.Second)).GetWithExecution(func(e failsafe.Execution[any]) (any, error) {
			inside = e.Context()
			<-inside.Done()
			return nil, inside.Err()
		})
		if _, ok := inside.Deadline(); ok || inside.Err() == context.DeadlineExceeded { //nolint:errorlint // as contexts return it
			t.Error("a timeout is a deadline of the context now")
		}
	})
}
