package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"netemd/probe"
)

// history is one course of a breaker, in words:
//
//	F, S    an attempt that fails, or succeeds; it must be let through
//	F5      five of them
//	x       an attempt that must be rejected
//	a+      an attempt a begins, which must be let through
//	aF, aS  it fails, or succeeds; aN: it says nothing (cancelled)
//	+2s     time passes
//	=open   the state, as others see it: by what is let through
type history struct {
	name    string
	breaker Breaker
	course  string
}

// histories has every change of state, and every way in which it can go wrong.
var histories = []history{
	{"closed to open by failures in a row", Breaker{Consecutive: 5, Open: time.Second}, "F4 =closed F =open x"},
	{"a success breaks the row", Breaker{Consecutive: 3}, "F2 S F2 S F2 =closed F =open"},
	{"one failure is enough", Breaker{Consecutive: 1}, "S5 =closed F =open x"},
	{"what says nothing breaks no row and is in none", Breaker{Consecutive: 2}, "F a+ aN =closed F =open"},
	{"open rejects, and for exactly its time", Breaker{Consecutive: 1, Open: 2 * time.Second}, "F x +1s x +999ms x +999us x +1us S =closed"},
	{"being asked does not keep it open", Breaker{Consecutive: 1, Open: 2 * time.Second}, "F +1s x +1s a+ =half-open"},
	{"half-open lets exactly one through", Breaker{Consecutive: 1, Open: time.Second}, "F +1s a+ =half-open x x +1h x aS =closed S3"},
	{"half-open lets exactly three through", Breaker{Consecutive: 1, Open: time.Second, Probes: 3}, "F +1s a+ b+ c+ x aS x bS x cS =closed"},
	{"three in all, not at one time", Breaker{Consecutive: 1, Open: time.Second, Probes: 3, Successes: 3}, "F +1s a+ aS b+ bS c+ x x =half-open cS =closed"},
	{"two of three close it", Breaker{Consecutive: 1, Open: time.Second, Probes: 3, Successes: 2}, "F +1s a+ b+ c+ aF =half-open bS =half-open cS =closed"},
	{"two of three failed", Breaker{Consecutive: 1, Open: time.Second, Probes: 3, Successes: 2}, "F +1s a+ b+ c+ aF bF =open x"},
	{"closed as soon as enough succeeded", Breaker{Consecutive: 1, Open: time.Second, Probes: 3, Successes: 2}, "F +1s a+ b+ c+ aS bS =closed cF =closed F =open"},
	{"a failed probe opens it again, for all of its time", Breaker{Consecutive: 3, Open: 2 * time.Second}, "F3 +2s a+ aF =open x +1999ms x +1ms b+ bF =open x +2s S =closed"},
	{"a slow probe's failure begins the time anew", Breaker{Consecutive: 1, Open: 2 * time.Second}, "F +2s a+ +5s aF =open +1999ms x +1ms a+ =half-open"},
	{"any probe's failure opens it again", Breaker{Consecutive: 1, Open: time.Second, Probes: 3}, "F +1s a+ b+ c+ aS bS cF =open x"},
	{"a success forgets the failures", Breaker{Consecutive: 5, Open: time.Second}, "F5 +1s S =closed F4 =closed F =open"},
	{"a probe that says nothing gives its place back", Breaker{Consecutive: 1, Open: time.Second}, "F +1s a+ x aN =half-open b+ x bS =closed"},
	{"late failures do not open it again", Breaker{Consecutive: 2, Open: time.Second}, "a+ b+ c+ F2 =open +1s p+ aF =half-open x bF =half-open x pS =closed cF F =closed F =open"},
	{"late failures are in no row", Breaker{Consecutive: 2, Open: time.Second}, "a+ b+ F2 +1s S =closed aF bF =closed F =closed F =open"},
	{"late successes do not close it", Breaker{Consecutive: 2, Open: time.Second}, "a+ b+ F2 +1s p+ aS =half-open x bS =half-open x pF =open x"},
	{"late successes give no place", Breaker{Consecutive: 1, Open: time.Second, Probes: 2}, "a+ F +1s p+ q+ aS x x pS qS =closed"},
	{"a late result while it is open", Breaker{Consecutive: 1, Open: time.Second}, "a+ b+ F aS =open x bF +999ms x +1ms S =closed"},
	{"a probe of an earlier round is late", Breaker{Consecutive: 1, Open: time.Second, Probes: 2}, "F +1s a+ b+ aF =open +1s c+ bS =half-open d+ x cS dS =closed"},

	{"closed to open by the ratio", Breaker{Ratio: 0.5, Calls: 10, MinCalls: 10}, "S5 F4 =closed F =open"},
	{"the ratio is at least", Breaker{Ratio: 0.6, Calls: 10, MinCalls: 5}, "S2 F2 =closed F =open"},
	{"the ratio says nothing of few", Breaker{Ratio: 0.5, Calls: 10, MinCalls: 4}, "F3 =closed F =open"},
	{"a success can be what makes them enough", Breaker{Ratio: 0.5, Calls: 10, MinCalls: 4}, "F3 =closed S =open"},
	{"old results leave the window of calls", Breaker{Ratio: 0.5, Calls: 4, MinCalls: 4}, "F S3 F =closed S3 F S F =open"},
	{"a window of time forgets", Breaker{Ratio: 0.5, Period: 10 * time.Second, MinCalls: 4}, "F3 +11s F3 =closed F =open"},
	{"a window of time remembers", Breaker{Ratio: 0.5, Period: 10 * time.Second, MinCalls: 4}, "F3 +8s F =open"},
	{"the window is forgotten with the state", Breaker{Ratio: 0.5, Calls: 10, MinCalls: 2, Open: time.Second}, "F2 =open +1s S =closed F =closed F =open"},
	{"the window of time is forgotten with the state", Breaker{Ratio: 0.5, Period: time.Minute, MinCalls: 2, Open: time.Second}, "F2 =open +1s S =closed F =closed F =open"},
	{"in a row or by ratio, what comes first", Breaker{Consecutive: 2, Ratio: 0.5, Calls: 10, MinCalls: 10}, "F2 =open"},
}

// follow plays a history, and says what went otherwise.
func (h history) follow(build func(Breaker, Clock) gate) error {
	clock := NewFakeClock()
	b := *Policy{Breaker: &h.breaker}.WithDefaults().Breaker
	g := build(b, clock)
	var last string
	note := func(e probe.PolicyEvent) {
		if e.Event != refused && e.Event != permitted {
			last = e.Event
		}
	}
	tickets := map[byte]ticket{}
	for i, word := range strings.Fields(h.course) {
		wrong := func(format string, args ...any) error {
			return fmt.Errorf("word %d, %s: %s", i+1, word, fmt.Sprintf(format, args...))
		}
		attempt := func(v verdict) error {
			t, ok := g.acquire(note)
			if !ok {
				return wrong("rejected")
			}
			g.record(t, v, note)
			return nil
		}
		switch {
		case word[0] == '+':
			d, err := time.ParseDuration(word[1:])
			if err != nil {
				return err
			}
			clock.Advance(d)
		case word[0] == '=':
			want := map[string]string{"=closed": closed, "=open": opened, "=half-open": halfOpened}[word]
			if last != want && (last != "" || want != closed) {
				return wrong("it is %q", last)
			}
		case word[0] == 'x':
			if _, ok := g.acquire(note); ok {
				return wrong("let through")
			}
		case word[0] == 'F' || word[0] == 'S':
			n := 1
			if len(word) > 1 {
				_, _ = fmt.Sscan(word[1:], &n)
			}
			for range n {
				if err := attempt(map[byte]verdict{'F': failure, 'S': success}[word[0]]); err != nil {
					return err
				}
			}
		case word[1] == '+':
			t, ok := g.acquire(note)
			if !ok {
				return wrong("rejected")
			}
			tickets[word[0]] = t
		default:
			g.record(tickets[word[0]], map[byte]verdict{'F': failure, 'S': success, 'N': nothing}[word[1]], note)
		}
	}
	return nil
}

func TestBreakerHistories(t *testing.T) {
	for _, h := range histories {
		if err := h.follow(func(b Breaker, c Clock) gate { return newBreaker(b, c) }); err != nil {
			t.Errorf("%s: %v", h.name, err)
		}
	}
}
