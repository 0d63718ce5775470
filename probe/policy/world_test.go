package policy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"netemd/probe"
)

// peer is what is called: each attempt gets the next of its answers, which are words such as
// ok@5ms, reset@0s, server@1ms/2s with a pushback (-1ns: no retry) or hang. When there is none left, it is ok@1ms.
type peer struct {
	clock Clock

	parting time.Duration // from a call's end to its return

	mu        sync.Mutex
	answers   []string
	attempts  []attempted
	under, at int // how many are called at one time, and were at most
}

// attempted is what the peer saw of an attempt.
type attempted struct {
	seq, attempt int
	began        int64
	key          string
	deadline     time.Time
}

func (p *peer) Call(ctx context.Context, seq int) probe.Sample {
	p.mu.Lock()
	word := "ok@1ms"
	if len(p.answers) > 0 {
		word, p.answers = p.answers[0], p.answers[1:]
	}
	deadline, _ := DeadlineOf(ctx)
	p.attempts = append(p.attempts, attempted{seq, Attempt(ctx), p.clock.Now(), IdempotencyKey(ctx), deadline})
	p.under++
	p.at = max(p.at, p.under)
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.under--
	}()
	class, after, _ := strings.Cut(word, "@")
	after, pushback, _ := strings.Cut(after, "/")
	d, err := time.ParseDuration(after)
	if err != nil {
		d = 1000 * time.Hour // hang
	}
	s := probe.Sample{Seq: seq, StartNS: p.clock.Now(), Class: probe.Class(class), Turns: Attempt(ctx)}
	if !rest(ctx, p.clock, d) {
		s.Class = probe.Other
		if ctx.Err() == context.DeadlineExceeded { //nolint:errorlint // as contexts return it
			s.Class = probe.Timeout
		}
	}
	if s.Class != probe.OK {
		s.Error = word
	}
	if least, err := time.ParseDuration(pushback); err == nil {
		s.PushbackNS = int64(least)
	}
	s.EndNS = p.clock.Now()
	rest(context.Background(), p.clock, p.parting)
	return s
}

// answer is what the next attempts get.
func (p *peer) answer(words string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers = strings.Fields(words)
}

// world is a client and its peer on a clock that passes when it is told.
type world struct {
	*testing.T
	*Client
	clock *FakeClock
	peer  *peer
}

// inWorld runs f with a client of p, in a bubble in which all goroutines are waited for.
func inWorld(t *testing.T, p Policy, o Options, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		clock := NewFakeClock()
		clock.Settle = synctest.Wait
		w := &world{T: t, clock: clock, peer: &peer{clock: clock}}
		o.Clock = clock
		k, err := New(p, w.peer, o)
		if err != nil {
			t.Fatal(err)
		}
		w.Client = k
		f(w)
	})
}

// call makes a call, lets time pass until it ends, and says how it went.
func (w *world) call(seq int) probe.Sample {
	var s probe.Sample
	done := w.begin(seq, &s)
	w.clock.Run()
	<-done
	return s
}

// begin makes a call that goes on while others do something.
func (w *world) begin(seq int, s *probe.Sample) (done chan struct{}) {
	done = make(chan struct{})
	go func() {
		*s = w.Call(context.Background(), seq)
		close(done)
	}()
	synctest.Wait()
	return done
}

// told is a call in words: its class and duration, its attempts with their class, beginning and
// duration, and the events with their times from the call's beginning.
func told(s probe.Sample) string {
	var b strings.Builder
	since := func(ns int64) time.Duration { return time.Duration(ns - s.StartNS) }
	fmt.Fprintf(&b, "%s %s", s.Class, s.Duration())
	if s.Degraded != "" {
		fmt.Fprintf(&b, " degraded: %s", s.Degraded)
	}
	b.WriteString(" [")
	for i, a := range s.Attempts {
		if i > 0 {
			b.WriteString(" ")
		}
		fmt.Fprintf(&b, "%s@%s+%s", a.Class, since(a.StartNS), a.Duration())
	}
	b.WriteString("]")
	for _, e := range s.Policy {
		fmt.Fprintf(&b, "\n%s %s %s", since(e.TimeNS), e.Policy, e.Event)
		if e.Attempt > 0 {
			fmt.Fprintf(&b, " #%d", e.Attempt)
		}
		if e.DelayNS > 0 {
			fmt.Fprintf(&b, " %s", time.Duration(e.DelayNS))
		}
		if e.Detail != "" {
			fmt.Fprintf(&b, " (%s)", e.Detail)
		}
	}
	return b.String()
}
