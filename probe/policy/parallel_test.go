package policy

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/probe"
)

func recorder() *probe.Recorder { return probe.NewRecorder("peer", probe.LayerDirect, time.Second) }

// Of 50 calls at one time a half-open breaker lets exactly so many through as it has probes.
func TestExactlySoManyProbes(t *testing.T) {
	for _, probes := range []int{1, 3} {
		inWorld(t, Policy{Breaker: &Breaker{Consecutive: 1, Open: 2 * time.Second, Probes: probes}}, Options{}, func(w *world) {
			w.peer.answer("timeout@1ms")
			w.call(0)
			w.clock.Advance(2 * time.Second)
			w.peer.answer(strings.Repeat("ok@300ms ", probes))
			samples, done := make([]probe.Sample, 50), make([]chan struct{}, 50)
			for i := range samples {
				done[i] = w.begin(1+i, &samples[i])
			}
			w.clock.Advance(299 * ms)
			if got := len(w.peer.attempts) - 1; got != probes {
				t.Errorf("the peer saw %d attempts of %d probes", got, probes)
			}
			w.clock.Run()
			counts := recorder()
			for i, s := range samples {
				<-done[i]
				if counts.Add(s); s.Class == probe.Rejected && s.Duration() > 0 {
					t.Errorf("call %d was rejected after %s", i, s.Duration())
				}
			}
			sum := counts.Summary("")
			if sum.Count != 50 || sum.Attempts != probes || sum.Rejected != 50-probes {
				t.Errorf("%d probes: %d calls, %d attempts, %d rejected", probes, sum.Count, sum.Attempts, sum.Rejected)
			}
			want := map[string]map[string]int{"breaker": {"half_opened": 1, "permitted": probes, "rejected": 50 - probes, "closed": 1}}
			if d := cmp.Diff(want, sum.Policy); d != "" {
				t.Errorf("%d probes (-want +got):\n%s", probes, d)
			}
		})
	}
}

// The bulkhead bounds what is under way, and serves who waits in their order.
func TestBulkhead(t *testing.T) {
	inWorld(t, Policy{Bulkhead: &Bulkhead{Concurrent: 2, Queue: 3, Wait: 25 * ms}}, Options{}, func(w *world) {
		// 0 and 1 run for 10 ms and 40 ms; 2, 3 and 4 wait, and 5 finds no room.
		w.peer.answer("ok@10ms ok@40ms ok@10ms ok@10ms ok@10ms")
		samples, done := make([]probe.Sample, 6), make([]chan struct{}, 6)
		for i := range samples {
			done[i] = w.begin(i, &samples[i])
		}
		w.clock.Run()
		var got []string
		for i, s := range samples {
			<-done[i]
			got = append(got, fmt.Sprintf("%d: %s", i, told(s)))
		}
		want := []string{
			"0: ok 10ms [ok@0s+10ms]",
			"1: ok 40ms [ok@0s+40ms]",
			"2: ok 20ms [ok@10ms+10ms]\n10ms bulkhead permitted 10ms",
			"3: ok 30ms [ok@20ms+10ms]\n20ms bulkhead permitted 20ms",
			"4: rejected 25ms []\n25ms bulkhead rejected 25ms (waited 25ms)",
			"5: rejected 0s []\n0s bulkhead rejected (2 under way and 3 waiting)",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
		if w.peer.at != 2 {
			t.Errorf("%d at one time", w.peer.at)
		}
		w.peer.answer("")
		if s := w.call(6); told(s) != "ok 1ms [ok@0s+1ms]" {
			t.Errorf("a place was lost: %s", told(s))
		}
	})
}

// Who gives up waiting takes nobody's place, and a place that is handed over at that
// moment is not lost.
func TestBulkheadGivenUp(t *testing.T) {
	inWorld(t, Policy{CallTimeout: 10 * ms, Bulkhead: &Bulkhead{Concurrent: 1, Queue: 5}}, Options{}, func(w *world) {
		for range 50 { // at one time: the end of the first call, and of the others' waits
			w.peer.answer("ok@10ms")
			samples, done := make([]probe.Sample, 4), make([]chan struct{}, 4)
			for i := range samples {
				done[i] = w.begin(i, &samples[i])
			}
			w.clock.Run()
			for i := range samples {
				<-done[i]
			}
			w.peer.answer("")
			if s := w.call(9); told(s) != "ok 1ms [ok@0s+1ms]" {
				t.Fatalf("a place was lost: %s", told(s))
			}
		}
	})
	inWorld(t, Policy{Bulkhead: &Bulkhead{Concurrent: 1, Queue: 1}}, Options{}, func(w *world) {
		w.peer.answer("ok@20ms")
		var first probe.Sample
		done := w.begin(0, &first)
		ctx, cancel := w.clock.WithTimeout(context.Background(), 5*ms)
		defer cancel()
		second := make(chan probe.Sample, 1)
		go func() { second <- w.Call(ctx, 1) }()
		w.clock.Run()
		<-done
		if got, want := told(<-second), "rejected 5ms []\n5ms bulkhead rejected 5ms (the call ended while it waited)"; got != want {
			t.Error(cmp.Diff(want, got))
		}
		w.peer.answer("")
		if s := w.call(2); told(s) != "ok 1ms [ok@0s+1ms]" {
			t.Errorf("a place was lost: %s", told(s))
		}
	})
}

// A call that is cut off from outside makes no other attempt, and says nothing about the peer.
func TestCutOff(t *testing.T) {
	p := Policy{Retry: &Retry{MaxAttempts: 5, Backoff: Fixed, Base: time.Second}, Breaker: &Breaker{Consecutive: 1}}
	for name, answers := range map[string]string{"in an attempt": "hang", "in a pause": "eof@0s"} {
		inWorld(t, Policy{Retry: p.Retry}, Options{}, func(w *world) {
			w.peer.answer(answers)
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan probe.Sample)
			go func() { done <- w.Call(ctx, 0) }()
			w.clock.Advance(100 * ms)
			cancel()
			synctest.Wait()
			select {
			case s := <-done:
				if s.Class == probe.OK || len(s.Attempts) != 1 {
					t.Errorf("%s: %s", name, told(s))
				}
			default:
				t.Errorf("%s: it goes on", name)
				w.clock.Run()
				<-done
			}
		})
	}
	inWorld(t, p, Options{}, func(w *world) {
		w.peer.answer("hang")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan probe.Sample)
		go func() { done <- w.Call(ctx, 0) }()
		synctest.Wait()
		cancel()
		<-done
		w.peer.answer("")
		if s := w.call(1); s.Class != probe.OK {
			t.Errorf("the breaker took it for a failure: %s", told(s))
		}
	})
}

// Everything together on the real clock, for the race detector: each call's account is whole.
func TestEverythingAtOnce(t *testing.T) {
	p := Policy{
		CallTimeout: 500 * ms, AttemptTimeout: 5 * ms, Retry: &Retry{MaxAttempts: 3, Backoff: FullJitter, Base: ms}, Budget: &Budget{Ratio: 1, MaxTokens: 100},
		Hedge: &Hedge{Delay: 2 * ms, Percentile: 0.9}, Breaker: &Breaker{Ratio: 0.9, Calls: 20, Open: ms}, Bulkhead: &Bulkhead{Concurrent: 8, Queue: 8},
		Fallback: &Fallback{Answer: AnswerCached}, Deadline: &Deadline{}, Idempotency: &Idempotency{},
	}
	inner := &peer{clock: Real{}}
	words := strings.Fields("ok@0s ok@3ms hang reset@1ms eof@0s ok@0s ok@0s")
	var all []string
	for i := range 4000 {
		all = append(all, words[i%len(words)])
	}
	inner.answer(strings.Join(all, " "))
	k, err := New(p, inner, Options{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := recorder()
	for worker := range 16 {
		wg.Go(func() {
			for i := range 30 {
				s := k.Call(context.Background(), worker*100+i)
				mu.Lock()
				counts.Add(s)
				mu.Unlock()
				for _, a := range s.Attempts {
					if a.Class == "" || a.EndNS < a.StartNS {
						t.Errorf("an attempt has not ended: %+v", a)
					}
				}
				if s.Class == probe.Rejected && len(s.Attempts) > 0 {
					t.Errorf("rejected with %d attempts", len(s.Attempts))
				}
			}
		})
	}
	wg.Wait()
	inner.mu.Lock()
	defer inner.mu.Unlock()
	sum := counts.Summary("")
	if inner.under != 0 || inner.at > 8 || sum.Count != 480 || sum.Attempts != len(inner.attempts) {
		t.Errorf("under way %d, at one time %d, calls %d, attempts %d of which the peer saw %d", inner.under, inner.at, sum.Count, sum.Attempts, len(inner.attempts))
	}
}
