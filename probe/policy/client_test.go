package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/probe"
)

const ms = time.Millisecond

// step is a call: how the peer answers its attempts, and what becomes of it.
type step struct {
	// pass is the time before it.
	pass    time.Duration
	answers string
	want    string
}

// TestClient has a course of calls for each policy and each thing that it can do. All times are
// exact.
func TestClient(t *testing.T) {
	three := &Retry{MaxAttempts: 3}
	for _, c := range []struct {
		name   string
		policy Policy
		o      Options
		steps  []step
	}{
		{"nothing", Policy{}, Options{}, []step{
			{0, "ok@5ms", "ok 5ms [ok@0s+5ms]"},
			{0, "reset@5ms", "reset 5ms [reset@0s+5ms]"},
		}},
		{"retry at once", Policy{Retry: three}, Options{}, []step{
			{0, "reset@5ms refused@1ms ok@2ms", `ok 8ms [reset@0s+5ms refused@5ms+1ms ok@6ms+2ms]
5ms retry scheduled #2 (reset)
5ms retry fired #2
6ms retry scheduled #3 (refused)
6ms retry fired #3`},
			{0, "reset@5ms reset@5ms timeout@5ms", `timeout 15ms [reset@0s+5ms reset@5ms+5ms timeout@10ms+5ms]
5ms retry scheduled #2 (reset)
5ms retry fired #2
10ms retry scheduled #3 (reset)
10ms retry fired #3
15ms retry exhausted #3`},
		}},
		{"one attempt is none again", Policy{Retry: &Retry{MaxAttempts: 1}}, Options{}, []step{{0, "reset@5ms", "reset 5ms [reset@0s+5ms]"}}},
		{"fixed backoff", Policy{Retry: &Retry{MaxAttempts: 3, Backoff: Fixed, Base: 20 * ms}}, Options{}, []step{
			{0, "reset@5ms reset@5ms ok@5ms", `ok 55ms [reset@0s+5ms reset@25ms+5ms ok@50ms+5ms]
5ms retry scheduled #2 20ms (reset)
25ms retry fired #2
30ms retry scheduled #3 20ms (reset)
50ms retry fired #3`},
		}},
		{"exponential backoff with its limit", Policy{Retry: &Retry{MaxAttempts: 5, Backoff: Exponential, Base: 100 * ms, Factor: 3, MaxDelay: 500 * ms}}, Options{}, []step{
			{0, "eof@0s eof@0s eof@0s eof@0s ok@1ms", `ok 1.401s [eof@0s+0s eof@100ms+0s eof@400ms+0s eof@900ms+0s ok@1.4s+1ms]
0s retry scheduled #2 100ms (eof)
100ms retry fired #2
100ms retry scheduled #3 300ms (eof)
400ms retry fired #3
400ms retry scheduled #4 500ms (eof)
900ms retry fired #4
900ms retry scheduled #5 500ms (eof)
1.4s retry fired #5`},
		}},
		{"only given classes", Policy{Retry: &Retry{On: []probe.Class{probe.Reset}}}, Options{}, []step{
			{0, "eof@5ms", "eof 5ms [eof@0s+5ms]"},
			{0, "reset@5ms eof@1ms", `eof 6ms [reset@0s+5ms eof@5ms+1ms]
5ms retry scheduled #2 (reset)
5ms retry fired #2`},
		}},
		{"timeout of an attempt", Policy{AttemptTimeout: 300 * ms, Retry: three}, Options{}, []step{
			{0, "hang ok@5ms", `ok 305ms [timeout@0s+300ms ok@300ms+5ms]
300ms timeout fired #1 300ms (attempt)
300ms retry scheduled #2 (timeout)
300ms retry fired #2`},
			{0, "reset@299ms ok@5ms", `ok 304ms [reset@0s+299ms ok@299ms+5ms]
299ms retry scheduled #2 (reset)
299ms retry fired #2`},
		}},
		{"timeout of an attempt, from outside", Policy{Retry: &Retry{MaxAttempts: 2}}, Options{AttemptTimeout: 50 * ms}, []step{
			{0, "hang hang", `timeout 100ms [timeout@0s+50ms timeout@50ms+50ms]
50ms timeout fired #1 50ms (attempt)
50ms retry scheduled #2 (timeout)
50ms retry fired #2
100ms timeout fired #2 50ms (attempt)
100ms retry exhausted #2`},
		}},
		{"timeout of the call", Policy{CallTimeout: 500 * ms, AttemptTimeout: 300 * ms, Retry: three}, Options{}, []step{
			{0, "hang hang", `timeout 500ms [timeout@0s+300ms timeout@300ms+200ms]
300ms timeout fired #1 300ms (attempt)
300ms retry scheduled #2 (timeout)
300ms retry fired #2
500ms timeout fired 500ms (call)`},
		}},
		{"timeout of the call in a pause", Policy{CallTimeout: 500 * ms, Retry: &Retry{Backoff: Fixed, Base: time.Second}}, Options{}, []step{
			{0, "refused@1ms", `timeout 500ms [refused@0s+1ms]
1ms retry scheduled #2 1s (refused)
500ms timeout fired 500ms (call)`},
		}},
		{"both timeouts at one time are the call's", Policy{CallTimeout: 300 * ms, AttemptTimeout: 300 * ms}, Options{}, []step{
			{0, "hang", `timeout 300ms [timeout@0s+300ms]
300ms timeout fired 300ms (call)`},
		}},
		{"a deadline gives a retry up", Policy{CallTimeout: 500 * ms, Deadline: &Deadline{}, Retry: &Retry{Backoff: Fixed, Base: 499 * ms}}, Options{}, []step{
			{0, "refused@1ms", `refused 1ms [refused@0s+1ms]
1ms deadline exhausted 499ms (a retry would begin after the end of the call, which is in 499ms)`},
			{0, "refused@0s ok@0s", `ok 499ms [refused@0s+0s ok@499ms+0s]
0s retry scheduled #2 499ms (refused)
499ms retry fired #2`},
		}},
		{"the server's pause is the least", Policy{Retry: &Retry{MaxAttempts: 4, Backoff: Fixed, Base: 100 * ms, MaxDelay: 2 * time.Second}}, Options{}, []step{
			{0, "server@0s/1s server@0s/99ms server@0s ok@0s", `ok 1.2s [server@0s+0s server@1s+0s server@1.1s+0s ok@1.2s+0s]
0s retry scheduled #2 1s (server; the pause is the server's)
1s retry fired #2
1s retry scheduled #3 100ms (server)
1.1s retry fired #3
1.1s retry scheduled #4 100ms (server)
1.2s retry fired #4`},
			{0, "server@0s/2s ok@0s", `ok 2s [server@0s+0s ok@2s+0s]
0s retry scheduled #2 2s (server; the pause is the server's)
2s retry fired #2`},
			{0, "server@1ms/2001ms", `server 1ms [server@0s+1ms]
1ms retry rejected #1 2.001s (the server asks for a pause above the longest, 2s)`},
			{0, "server@1ms/-1ns", `server 1ms [server@0s+1ms]
1ms retry rejected #1 (the server asks for no other attempt)`},
		}},
		{"the server's word is ignored", Policy{Retry: &Retry{Backoff: Fixed, Base: 100 * ms, IgnorePushback: true}}, Options{}, []step{
			{0, "server@0s/1s server@0s/-1ns ok@0s", `ok 200ms [server@0s+0s server@100ms+0s ok@200ms+0s]
0s retry scheduled #2 100ms (server)
100ms retry fired #2
100ms retry scheduled #3 100ms (server)
200ms retry fired #3`},
		}},
		{"the server's pause and the call's deadline", Policy{CallTimeout: 500 * ms, Deadline: &Deadline{}, Retry: three}, Options{}, []step{
			{0, "server@0s/600ms", `server 0s [server@0s+0s]
0s deadline exhausted 600ms (a retry would begin after the end of the call, which is in 500ms)`},
		}},
		{"the server's pause takes no token when it is refused", Policy{Retry: three, Budget: &Budget{Ratio: 0.1, MaxTokens: 1}}, Options{}, []step{
			{0, "server@0s/-1ns", `server 0s [server@0s+0s]
0s retry rejected #1 (the server asks for no other attempt)`},
			{0, "reset@0s ok@0s", `ok 0s [reset@0s+0s ok@0s+0s]
0s retry scheduled #2 (reset)
0s retry fired #2`},
		}},
		{"budget", Policy{Retry: three, Budget: &Budget{Ratio: 0.5, MaxTokens: 2}}, Options{}, []step{
			{0, "reset@0s reset@0s reset@0s", `reset 0s [reset@0s+0s reset@0s+0s reset@0s+0s]
0s retry scheduled #2 (reset)
0s retry fired #2
0s retry scheduled #3 (reset)
0s retry fired #3
0s retry exhausted #3`},
			{0, "reset@0s", "reset 0s [reset@0s+0s]\n0s budget rejected #1 (retry)"},
			{0, "reset@0s reset@0s", `reset 0s [reset@0s+0s reset@0s+0s]
0s retry scheduled #2 (reset)
0s retry fired #2
0s budget rejected #2 (retry)`},
		}},
		{"breaker", Policy{Breaker: &Breaker{Consecutive: 2, Open: time.Second}}, Options{}, []step{
			{0, "reset@1ms", "reset 1ms [reset@0s+1ms]"},
			{0, "reset@1ms", "reset 1ms [reset@0s+1ms]\n1ms breaker opened #1 1s (2 failures in a row)"},
			{0, "", "rejected 0s []\n0s breaker rejected (open for 1s more)"},
			{999 * ms, "", "rejected 0s []\n0s breaker rejected (open for 1ms more)"},
			{1 * ms, "reset@1ms", `reset 1ms [reset@0s+1ms]
0s breaker half_opened (lets 1 through)
0s breaker permitted (probe 1 of 1)
1ms breaker opened #1 1s (a probe failed)`},
			{time.Second, "ok@1ms", `ok 1ms [ok@0s+1ms]
0s breaker half_opened (lets 1 through)
0s breaker permitted (probe 1 of 1)
1ms breaker closed #1`},
			{0, "reset@1ms", "reset 1ms [reset@0s+1ms]"},
		}},
		{"only classes that count", Policy{Breaker: &Breaker{Consecutive: 2, On: []probe.Class{probe.Timeout}}}, Options{}, []step{
			{0, "timeout@1ms", "timeout 1ms [timeout@0s+1ms]"},
			{0, "server@1ms", "server 1ms [server@0s+1ms]"},
			{0, "timeout@1ms", "timeout 1ms [timeout@0s+1ms]"},
			{0, "timeout@1ms", "timeout 1ms [timeout@0s+1ms]\n1ms breaker opened #1 10s (2 failures in a row)"},
		}},
		{"a breaker counts attempts, and ends the retries", Policy{Retry: three, Breaker: &Breaker{Consecutive: 2, Open: time.Second}}, Options{}, []step{
			{0, "reset@1ms eof@1ms", `eof 2ms [reset@0s+1ms eof@1ms+1ms]
1ms retry scheduled #2 (reset)
1ms retry fired #2
2ms breaker opened #2 1s (2 failures in a row)
2ms retry scheduled #3 (eof)
2ms retry fired #3
2ms breaker rejected (open for 1s more)`},
		}},
		{"retries can outlast a breaker", Policy{Retry: &Retry{Backoff: Fixed, Base: time.Second, On: []probe.Class{probe.Rejected, probe.Reset}}, Breaker: &Breaker{Consecutive: 1, Open: 1500 * ms}}, Options{}, []step{
			{0, "reset@0s ok@1ms", `ok 2.001s [reset@0s+0s ok@2s+1ms]
0s breaker opened #1 1.5s (1 failures in a row)
0s retry scheduled #2 1s (reset)
1s retry fired #2
1s breaker rejected (open for 500ms more)
1s retry scheduled #2 1s (rejected)
2s retry fired #2
2s breaker half_opened (lets 1 through)
2s breaker permitted (probe 1 of 1)
2.001s breaker closed #2`},
		}},
		{"a breaker around the retry counts calls", Policy{Retry: &Retry{MaxAttempts: 2}, Breaker: &Breaker{Consecutive: 2}, Order: []Layer{LayerBreaker, LayerRetry}}, Options{}, []step{
			{0, "reset@1ms reset@1ms", `reset 2ms [reset@0s+1ms reset@1ms+1ms]
1ms retry scheduled #2 (reset)
1ms retry fired #2
2ms retry exhausted #2`},
			{0, "reset@1ms ok@1ms", `ok 2ms [reset@0s+1ms ok@1ms+1ms]
1ms retry scheduled #2 (reset)
1ms retry fired #2`},
		}},
		{"fallback", Policy{AttemptTimeout: 100 * ms, Fallback: &Fallback{}, Breaker: &Breaker{Consecutive: 1}}, Options{}, []step{
			{0, "ok@1ms", "ok 1ms [ok@0s+1ms]"},
			{0, "hang", `ok 100ms degraded: default [timeout@0s+100ms]
100ms timeout fired #1 100ms (attempt)
100ms breaker opened #1 10s (1 failures in a row)
100ms fallback used #1 (timeout: hang)`},
			{0, "", `ok 0s degraded: default []
0s breaker rejected (open for 10s more)
0s fallback used (rejected: the breaker is open)`},
		}},
		{"fallback for some classes", Policy{Fallback: &Fallback{On: []probe.Class{probe.Rejected}}}, Options{}, []step{{0, "reset@1ms", "reset 1ms [reset@0s+1ms]"}}},
		{"fallback to the cache", Policy{Fallback: &Fallback{Answer: AnswerCached, MaxAge: time.Second}}, Options{}, []step{
			{0, "reset@1ms", "reset 1ms [reset@0s+1ms]\n1ms cache exhausted (nothing is in it)"},
			{0, "ok@1ms", "ok 1ms [ok@0s+1ms]"},
			{999 * ms, "reset@1ms", "ok 1ms degraded: cached [reset@0s+1ms]\n1ms cache used #1 (of 1s ago; reset: reset@1ms)"},
			{0, "reset@1ms", "reset 1ms [reset@0s+1ms]\n1ms cache exhausted (what is in it is older than 1s)"},
		}},
		{"fallback for the timeout of the call", Policy{CallTimeout: 100 * ms, Fallback: &Fallback{}}, Options{}, []step{
			{0, "hang", `ok 100ms degraded: default [timeout@0s+100ms]
100ms timeout fired 100ms (call)
100ms fallback used #1 (timeout: the call's timeout of 100ms: hang)`},
		}},
		{"a hedge wins", Policy{Hedge: &Hedge{Delay: 50 * ms}}, Options{}, []step{
			{0, "ok@300ms ok@20ms", `ok 70ms [cancelled@0s+70ms ok@50ms+20ms]
50ms hedge fired #2 50ms
70ms hedge used #2`},
		}},
		{"a hedge loses", Policy{Hedge: &Hedge{Delay: 50 * ms}}, Options{}, []step{
			{0, "ok@60ms hang", "ok 60ms [ok@0s+60ms cancelled@50ms+10ms]\n50ms hedge fired #2 50ms"},
		}},
		{"no hedge where the first is in time", Policy{Hedge: &Hedge{Delay: 50 * ms}}, Options{}, []step{
			{0, "ok@49ms", "ok 49ms [ok@0s+49ms]"},
			{0, "reset@49ms", "reset 49ms [reset@0s+49ms]"},
		}},
		{"a failure does not win", Policy{Hedge: &Hedge{Delay: 50 * ms}}, Options{}, []step{
			{0, "reset@60ms ok@20ms", "ok 70ms [reset@0s+60ms ok@50ms+20ms]\n50ms hedge fired #2 50ms\n70ms hedge used #2"},
			{0, "reset@60ms eof@20ms", "eof 70ms [reset@0s+60ms eof@50ms+20ms]\n50ms hedge fired #2 50ms"},
		}},
		{"several hedges, each a delay later", Policy{Hedge: &Hedge{Delay: 50 * ms, Max: 2}}, Options{}, []step{
			{0, "hang hang ok@5ms", `ok 105ms [cancelled@0s+105ms cancelled@50ms+55ms ok@100ms+5ms]
50ms hedge fired #2 50ms
100ms hedge fired #3 50ms
105ms hedge used #3`},
		}},
		{"hedges take tokens", Policy{Hedge: &Hedge{Delay: 50 * ms}, Budget: &Budget{Ratio: 0.5, MaxTokens: 1}}, Options{}, []step{
			{0, "ok@60ms ok@60ms", "ok 60ms [ok@0s+60ms cancelled@50ms+10ms]\n50ms hedge fired #2 50ms"},
			{0, "ok@60ms", "ok 60ms [ok@0s+60ms]\n50ms budget rejected (hedge)"},
			{0, "ok@60ms ok@60ms", "ok 60ms [ok@0s+60ms cancelled@50ms+10ms]\n50ms hedge fired #2 50ms"},
		}},
		{"a cancelled attempt does not count with the breaker", Policy{Hedge: &Hedge{Delay: 50 * ms}, Breaker: &Breaker{Consecutive: 1}}, Options{}, []step{
			{0, "hang ok@1ms", "ok 51ms [cancelled@0s+51ms ok@50ms+1ms]\n50ms hedge fired #2 50ms\n51ms hedge used #2"},
			{0, "ok@1ms", "ok 1ms [ok@0s+1ms]"},
		}},
		{"hedged attempts have their timeouts, and the call its", Policy{CallTimeout: 120 * ms, AttemptTimeout: 100 * ms, Hedge: &Hedge{Delay: 50 * ms}}, Options{}, []step{
			{0, "hang hang", `timeout 120ms [timeout@0s+100ms timeout@50ms+70ms]
50ms hedge fired #2 50ms
100ms timeout fired #1 100ms (attempt)
120ms timeout fired 120ms (call)`},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, c.policy, c.o, func(w *world) {
				for i, s := range c.steps {
					w.clock.Advance(s.pass)
					w.peer.answer(s.answers)
					got := w.call(i)
					if d := cmp.Diff(s.want, told(got)); d != "" {
						t.Errorf("call %d (-want +got):\n%s", i, d)
					}
					if len(w.peer.answers) > 0 {
						t.Errorf("call %d: answers are left: %v", i, w.peer.answers)
					}
				}
			})
		})
	}
}

// A call's sample is that of the attempt that decided it.
func TestTheDecidingAttempt(t *testing.T) {
	inWorld(t, Policy{Retry: &Retry{}}, Options{}, func(w *world) {
		w.peer.answer("reset@1ms ok@1ms")
		if s := w.call(7); s.Seq != 7 || s.Turns != 2 || s.Attempts[0].Seq != 7 || s.Attempts[1].Turns != 2 || s.Error != "" {
			t.Errorf("%+v", s)
		}
		w.peer.answer("reset@1ms eof@1ms server@1ms")
		if s := w.call(8); s.Turns != 3 || s.Error != "server@1ms" {
			t.Errorf("%+v", s)
		}
	})
}

func TestRefusedPolicies(t *testing.T) {
	hedge := Policy{Hedge: &Hedge{Delay: ms}}
	for _, c := range []struct {
		name string
		p    Policy
		o    Options
		want string
	}{
		{"not valid", Policy{Retry: &Retry{MaxAttempts: -1}}, Options{}, `retry.max_attempts "-1": want a number from 1 to 100`},
		{"a hedge of calls that change something", hedge, Options{Unsafe: true}, `hedge "on calls that change something": want idempotency with key: per_call beside it, or no hedge`},
		{"with a key", Policy{Hedge: hedge.Hedge, Idempotency: &Idempotency{}}, Options{Unsafe: true}, ""},
		{"with a key for each attempt", Policy{Hedge: hedge.Hedge, Idempotency: &Idempotency{Key: PerAttempt}}, Options{Unsafe: true}, "hedge"},
	} {
		_, err := New(c.p, nil, c.o)
		if (err == nil) != (c.want == "") || err != nil && !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
