package policy

import (
	"fmt"
	"testing"
	"time"
)

// The delay is the percentile of the attempts that succeeded, once enough were seen.
func TestHedgePercentile(t *testing.T) {
	inWorld(t, Policy{Hedge: &Hedge{Percentile: 0.9, Window: 10}}, Options{}, func(w *world) {
		w.peer.answer("ok@500ms")
		if s := w.call(0); len(s.Attempts) != 1 {
			t.Errorf("hedged before anything was seen: %s", told(s))
		}
		for i := 1; i <= 10; i++ { // 100 ms..10 ms; the 500 ms leave the window
			w.peer.answer(fmt.Sprintf("ok@%dms", 110-10*i))
			if s := w.call(i); len(s.Attempts) != 1 {
				t.Errorf("call %d: %s", i, told(s))
			}
		}
		w.peer.answer("hang ok@1ms")
		if got, want := told(w.call(11)), "ok 91ms [cancelled@0s+91ms ok@90ms+1ms]\n90ms hedge fired #2 90ms\n91ms hedge used #2"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		w.peer.answer("reset@1ms")
		w.call(12) // a failure is no measure of slowness
		w.peer.answer("hang ok@1ms")
		if s := w.call(13); s.Policy[0].DelayNS != int64(80*ms) { // the hedge's 1 ms has come for the 100 ms
			t.Errorf("%s", told(s))
		}
	})
	inWorld(t, Policy{Hedge: &Hedge{Percentile: 0.9, Delay: 50 * ms}}, Options{}, func(w *world) {
		w.peer.answer("hang ok@1ms")
		if s := w.call(0); s.Duration() != 51*ms {
			t.Errorf("the delay does not hold until the percentile is known: %s", told(s))
		}
	})
}

func TestNearestRank(t *testing.T) {
	r := &recent{size: 100}
	for i := range 100 {
		r.add(time.Duration(100 - i))
	}
	for share, want := range map[float64]time.Duration{0.95: 95, 0.5: 50, 0.999: 100, 0.001: 1, 0.955: 96} {
		if got, ok := r.percentile(share); !ok || got != want {
			t.Errorf("%v: %d, want %d", share, got, want)
		}
	}
}
