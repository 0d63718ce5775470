package policy

import (
	"context"
	"regexp"
	"testing"
	"time"

	"netemd/probe"
)

func TestGRPCTimeout(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "0n", 0: "0n", 1: "1n", 99_999_999: "99999999n", 100_000_000: "100000u", 100_000_001: "100001u", time.Second: "1000000u",
		100 * time.Second: "100000m", 99_999_999 * ms: "99999999m", 100_000_000 * ms: "100000S", 1<<63 - 1: "2562048H",
	} {
		if got := GRPCTimeout(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

var uuid4 = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// A call has one key and each attempt its number; the deliberate mistake has a key for each.
func TestIdempotencyKeys(t *testing.T) {
	for mode, keys := range map[string]int{PerCall: 2, PerAttempt: 4, PerRun: 1} {
		inWorld(t, Policy{Retry: &Retry{}, Hedge: &Hedge{Delay: 10 * ms}, Idempotency: &Idempotency{Key: mode}}, Options{}, func(w *world) {
			w.peer.answer("eof@0s ok@20ms ok@20ms")
			w.call(0)
			w.call(1)
			seen := map[string]bool{}
			for i, a := range w.peer.attempts {
				if !uuid4.MatchString(a.key) {
					t.Errorf("%s: key %q", mode, a.key)
				}
				if want := []int{1, 2, 3, 1}[i]; a.attempt != want {
					t.Errorf("%s: attempt %d, want %d", mode, a.attempt, want)
				}
				seen[a.key] = true
			}
			if len(w.peer.attempts) != 4 || len(seen) != keys {
				t.Errorf("%s: %d keys of %d attempts, want %d", mode, len(seen), len(w.peer.attempts), keys)
			}
		})
	}
	inWorld(t, Policy{}, Options{}, func(w *world) {
		w.call(0)
		if a := w.peer.attempts[0]; a.key != "" || !a.deadline.IsZero() {
			t.Errorf("a key or deadline that nobody asked for: %+v", a)
		}
	})
	if ctx := context.Background(); Attempt(ctx) != 0 || IdempotencyKey(ctx) != "" {
		t.Error("something is there outside of a policy")
	}
}

// What is passed on is the end of the attempt or of the call, less the reserve.
func TestDeadlines(t *testing.T) {
	for _, c := range []struct {
		d             Deadline
		call, attempt time.Duration
		want          []time.Duration // from the call's beginning
	}{
		{Deadline{}, 500 * ms, 300 * ms, []time.Duration{300 * ms, 500 * ms}},
		{Deadline{Reserve: 20 * ms}, 500 * ms, 300 * ms, []time.Duration{280 * ms, 480 * ms}},
		{Deadline{Pass: PassCall}, 500 * ms, 300 * ms, []time.Duration{500 * ms, 500 * ms}},
		{Deadline{}, 0, 300 * ms, []time.Duration{300 * ms, 600 * ms, 900 * ms}},
	} {
		inWorld(t, Policy{CallTimeout: c.call, AttemptTimeout: c.attempt, Retry: &Retry{}, Deadline: &c.d}, Options{}, func(w *world) {
			w.peer.answer("hang hang hang")
			s := w.call(0)
			if len(s.Attempts) != len(c.want) {
				t.Fatalf("%+v: %s", c.d, told(s))
			}
			for i, want := range c.want {
				if got := w.peer.attempts[i].deadline.Sub(TimeOf(s.StartNS)); got != want {
					t.Errorf("%+v, attempt %d: %s, want %s", c.d, i+1, got, want)
				}
			}
		})
	}
	inWorld(t, Policy{Deadline: &Deadline{}}, Options{}, func(w *world) {
		w.call(0)
		if a := w.peer.attempts[0]; !a.deadline.IsZero() {
			t.Errorf("a deadline where nothing bounds the call: %+v", a)
		}
	})
}

// On the real clock a hung attempt ends by the context's deadline, which clients see.
func TestRealTimeout(t *testing.T) {
	var deadlines []bool
	inner := callerFunc(func(ctx context.Context, _ int) probe.Sample {
		_, ok := ctx.Deadline()
		deadlines = append(deadlines, ok)
		began := probe.Now()
		<-ctx.Done()
		return probe.Sample{StartNS: began, EndNS: probe.Now(), Class: probe.Classify(ctx.Err()), Error: ctx.Err().Error()}
	})
	k, err := New(Policy{AttemptTimeout: 20 * ms, Retry: &Retry{MaxAttempts: 2}}, inner, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := k.Call(context.Background(), 0)
	if s.Class != probe.Timeout || len(s.Attempts) != 2 || s.Duration() < 40*ms || len(deadlines) != 2 || !deadlines[0] || !deadlines[1] {
		t.Errorf("%s, deadlines %v", told(s), deadlines)
	}
	if err := k.Close(); err != nil {
		t.Error(err)
	}
}

// A client that was reset when its time ran out says what it knows.
func TestATimeoutDoesNotHideWhatTheClientKnows(t *testing.T) {
	for class, want := range map[probe.Class]probe.Class{probe.Reset: probe.Reset, probe.Other: probe.Timeout} {
		clock := NewFakeClock()
		inner := callerFunc(func(ctx context.Context, _ int) probe.Sample {
			clock.Advance(20 * ms)
			<-ctx.Done()
			return probe.Sample{Class: class}
		})
		k, err := New(Policy{AttemptTimeout: 20 * ms}, inner, Options{Clock: clock})
		if err != nil {
			t.Fatal(err)
		}
		if s := k.Call(context.Background(), 0); s.Class != want || s.Attempts[0].Class != want || (len(s.Policy) == 1) != (want == probe.Timeout) {
			t.Errorf("%s: %s", class, told(s))
		}
	}
}

type callerFunc func(ctx context.Context, seq int) probe.Sample

func (f callerFunc) Call(ctx context.Context, seq int) probe.Sample { return f(ctx, seq) }

// The fake clock's contexts are as the real ones.
func TestFakeClockContexts(t *testing.T) {
	c := NewFakeClock()
	outer, cancelOuter := c.WithTimeout(context.Background(), time.Second)
	defer cancelOuter()
	longer, cancelLonger := c.WithTimeout(outer, time.Minute)
	defer cancelLonger()
	if at, ok := longer.Deadline(); !ok || !at.Equal(TimeOf(c.Now()+int64(time.Second))) {
		t.Errorf("deadline %v, %t", at, ok)
	}
	below, cancelBelow := context.WithCancel(longer)
	defer cancelBelow()
	c.Advance(time.Second)
	for _, ctx := range []context.Context{outer, longer, below} {
		<-ctx.Done()
		if ctx.Err() != context.DeadlineExceeded { //nolint:errorlint // as contexts return it
			t.Errorf("%v", ctx.Err())
		}
	}
	parent, cancelParent := context.WithCancel(context.Background())
	child, cancelChild := c.WithTimeout(parent, time.Second)
	defer cancelChild()
	cancelParent()
	<-child.Done()
	if child.Err() != context.Canceled { //nolint:errorlint // as contexts return it
		t.Errorf("%v", child.Err())
	}
	var order []int
	for i, d := range []time.Duration{3, 1, 2, 1} {
		c.AfterFunc(d, func() { order = append(order, i) })
	}
	stop := c.AfterFunc(2, func() { order = append(order, 9) })
	if !stop() || stop() {
		t.Error("a timer is stopped once")
	}
	c.Advance(2)
	if want := []int{1, 3, 2}; len(order) != 3 || order[0] != want[0] || order[1] != want[1] || order[2] != want[2] {
		t.Errorf("order %v, want %v", order, want)
	}
}
