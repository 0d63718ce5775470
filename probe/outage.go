package probe

import (
	"cmp"
	"slices"
	"time"
)

// Outage is a time in which calls failed, from the first that did to the next success. It
// tells apart what the network took to heal, and what the client took after that to notice:
// a pool may hand out connections that died meanwhile.
type Outage struct {
	// StartNS is when the first call that failed began, on the clock of samples.
	StartNS int64 `json:"start_ns"`
	// Failed counts the calls that failed, Kept those of them that were on a connection of
	// an earlier call: each such connection costs one call, if its client lets go of it.
	Failed int `json:"failed_calls"`
	Kept   int `json:"failed_on_kept_connections"`
	// Network is when the target answered a TCP connection again, be it by a refusal, in ms
	// from StartNS; null if it never did. Where calls go through kept connections, straight to
	// the target, it is asked by connections of one SYN each, 50 ms apart, from the first
	// failure's end on; so a network that was well all the time answers then. A call that
	// succeeds is an answer in any case.
	Network *float64 `json:"network_answered_ms"`
	// Success is when a call that began after StartNS succeeded, in ms from there; null if
	// none did.
	Success *float64 `json:"first_success_ms"`
}

// Outages finds them in calls as they end. The zero value has seen none; it is not safe
// for concurrent use.
//
// Of calls that are under way at the same time, one that fails late may belong to an outage that
// others have seen the end of: it is counted there where it began before that end. Where a call
// that began after it has succeeded before it failed, and it is of no outage before, its outage is
// over at once, by the first such success.
type Outages struct {
	// List are the outages in their order, at most the first 100; Count is how many there
	// were.
	List  []Outage `json:"list"`
	Count int      `json:"count"`

	open bool
	now  Outage
	// ended is when the last outage was over; 0 without one.
	ended int64
	good  successes
}

const mostOutages = 100

// Ended takes a call that has ended, and reports whether an outage began with it that goes on:
// then the network is to be asked until Answered or Over.
func (o *Outages) Ended(s Sample) (began bool) {
	switch s.Class {
	case OK:
		if s.Degraded != "" {
			break
		}
		o.good.add(s.StartNS, s.EndNS)
		if o.open && s.StartNS >= o.now.StartNS {
			o.over(s.EndNS)
		}
	case Timeout, Refused, Reset, EOF, Other:
		if !o.open && o.Count > 0 && s.StartNS < o.ended {
			if o.Count == len(o.List) {
				o.List[o.Count-1].fail(s)
			}
			break
		}
		if began = !o.open; began {
			o.open, o.now = true, Outage{StartNS: s.StartNS}
		}
		o.now.fail(s)
		if end, ok := o.good.first(s.StartNS); ok && began {
			o.over(end)
			began = false
		}
	}
	return began
}

func (o *Outage) fail(s Sample) {
	o.Failed++
	if s.Reused {
		o.Kept++
	}
}

// over ends the outage by a success.
func (o *Outages) over(timeNS int64) {
	o.Answered(timeNS)
	o.now.Success, o.ended = o.since(timeNS), timeNS
	o.close()
}

// Answered says that the network has answered at a time, if it had not before.
func (o *Outages) Answered(timeNS int64) {
	if o.open && o.now.Network == nil {
		o.now.Network = o.since(timeNS)
	}
}

// Over reports whether nothing is to be asked any more.
func (o *Outages) Over() bool { return !o.open || o.now.Network != nil }

// Finish ends an outage that the run's end found.
func (o *Outages) Finish() {
	if o.open {
		o.close()
	}
}

func (o *Outages) since(timeNS int64) *float64 {
	v := milliseconds(time.Duration(max(0, timeNS-o.now.StartNS)))
	return &v
}

func (o *Outages) close() {
	if o.Count++; len(o.List) < mostOutages {
		o.List = append(o.List, o.now)
	}
	o.open = false
}

// successes are when the last calls that succeeded began and ended, as far as it matters which
// was the first that began after a moment. They are in the order of their ends, and each began
// later than the one before, by 1 ms at least: what is found is late by no more than that, and by
// the pause to the next success.
type successes struct {
	kept []success
	last success // the one that began last
}

type success struct{ start, end int64 }

const (
	successesApart = int64(time.Millisecond)
	// mostSuccesses reach back for 8 s at least, and take 128 kB.
	mostSuccesses = 8192
)

func (g *successes) add(start, end int64) {
	if len(g.kept) == 0 || start > g.last.start {
		g.last = success{start, end}
	}
	if n := len(g.kept); n > 0 && start < g.kept[n-1].start+successesApart {
		return
	}
	if len(g.kept) == mostSuccesses {
		g.kept = append(g.kept[:0], g.kept[mostSuccesses/2:]...)
	}
	g.kept = append(g.kept, success{start, end})
}

// first is the end of the first success that began at a time or after it.
func (g *successes) first(from int64) (end int64, ok bool) {
	i, _ := slices.BinarySearchFunc(g.kept, from, func(s success, t int64) int { return cmp.Compare(s.start, t) })
	if i < len(g.kept) {
		return g.kept[i].end, true
	}
	return g.last.end, len(g.kept) > 0 && g.last.start >= from
}
