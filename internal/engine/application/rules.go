package application

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"netemd/internal/fault"
)

// silence is how long the agent may say nothing before the rules are out of force. It looks
// twice a second, one fault after the other, of which each may take a second when it hangs.
const silence = 5 * time.Second

// Rule is a fault as the child has it.
type Rule struct {
	// ID is the fault's.
	ID      string        `json:"id"`
	Request fault.Request `json:"request"`
	// DeadlineUnixNS ends it by itself.
	DeadlineUnixNS int64 `json:"deadline_unix_ns"`
}

// State is a rule and what it has done.
type State struct {
	Rule
	// Over says that it has ended by itself.
	Over     bool           `json:"over"`
	Counters fault.Counters `json:"counters"`
}

// rule is a Rule in the child.
type rule struct {
	Rule
	// over is closed when it ends.
	over                                       chan struct{}
	end                                        func()
	timer                                      *time.Timer
	seen, errors, delayed, aborted, letThrough atomic.Uint64
}

func newRule(r Rule) *rule {
	n := &rule{Rule: r, over: make(chan struct{})}
	n.end = sync.OnceFunc(func() { close(n.over) })
	return n
}

func (r *rule) ended() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

func (r *rule) state() State {
	return State{Rule: r.Rule, Over: r.ended(), Counters: fault.Counters{
		Seen: r.seen.Load(), Errors: r.errors.Load(), Delayed: r.delayed.Load(), Aborted: r.aborted.Load(), Opened: r.letThrough.Load(),
	}}
}

// rules are those in the child. The zero value has none; it is safe for concurrent use.
type rules struct {
	now   atomic.Pointer[[]*rule]
	heard atomic.Pointer[time.Time] // when the agent said something last
	mu    sync.Mutex                // while they are replaced
}

// hear notes that the agent lives.
func (s *rules) hear() { s.heard.Store(new(time.Now())) }

// unheard reports whether the agent has said nothing for too long.
func (s *rules) unheard() bool {
	at := s.heard.Load()
	return at == nil || time.Since(*at) > silence
}

func (s *rules) all() []*rule {
	if p := s.now.Load(); p != nil {
		return *p
	}
	return nil
}

// set makes want all rules. One that is there already, and has not ended, goes on counting.
func (s *rules) set(want []Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.all()
	next := make([]*rule, len(want))
	for i, w := range want {
		k := slices.IndexFunc(old, func(r *rule) bool { return r.ID == w.ID && same(r.Request, w.Request) && !r.ended() })
		if k < 0 {
			next[i] = newRule(w)
		} else {
			kept := old[k]
			kept.timer.Stop()
			// Who reads it meanwhile has the one or the other: the deadline is read below mu alone.
			kept.DeadlineUnixNS = w.DeadlineUnixNS
			next[i] = kept
		}
		// The clock of the timer is the monotonic one: setting the wall clock moves nothing.
		next[i].timer = time.AfterFunc(time.Until(time.Unix(0, w.DeadlineUnixNS)), next[i].end)
	}
	s.now.Store(&next)
	for _, r := range old {
		if !slices.Contains(next, r) {
			r.timer.Stop()
			r.end()
		}
	}
}

func (s *rules) states() []State {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := []State{}
	for _, r := range s.all() {
		states = append(states, r.state())
	}
	return states
}

// same reports whether two requests ask for the same.
func same(a, b fault.Request) bool {
	headers := slices.Equal(a.Headers, b.Headers)
	a.Headers, b.Headers = nil, nil
	return headers && equal(a, b)
}

// meeting is what the rules do to one request.
type meeting struct {
	verdict fault.Verdict // Passed, Answered or Aborted
	by      *rule         // of an answer
	gone    bool          // the client has gone while it was held
}

// meet takes a request through all rules, and waits where one holds it. gone is asked from time to
// time whether the client has gone, where ctx does not tell; nil is where it does.
func (s *rules) meet(ctx context.Context, r *http.Request, gone func() bool) meeting {
	for _, x := range s.all() {
		header := func(name string) []string { return valuesOf(r, name) }
		if x.ended() || !x.Request.Selects(r.Method, r.URL.Path, header, isCall(r)) {
			continue
		}
		k := x.seen.Add(1) - 1
		if s.unheard() {
			x.letThrough.Add(1)
			continue
		}
		switch verdict, wait := x.Request.Draw(k); verdict {
		case fault.Answered:
			x.errors.Add(1)
			return meeting{verdict: verdict, by: x}
		case fault.Aborted:
			x.aborted.Add(1)
			return meeting{verdict: verdict, by: x}
		case fault.Held:
			x.delayed.Add(1)
			if !s.hold(ctx, x, wait, gone) {
				return meeting{gone: true}
			}
		}
	}
	return meeting{}
}

// lookEvery is how often a request that is held asks for its client.
const lookEvery = 50 * time.Millisecond

// hold waits, and reports whether the client is still there.
func (s *rules) hold(ctx context.Context, x *rule, wait time.Duration, gone func() bool) bool {
	due := time.NewTimer(wait)
	defer due.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-due.C:
			return true
		case <-x.over:
			return true
		case <-ctx.Done():
			return false
		case <-look.C:
			if gone != nil && gone() {
				return false
			}
			if s.unheard() {
				return true
			}
		}
	}
}
