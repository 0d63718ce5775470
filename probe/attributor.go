package probe

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"time"
)

const (
	defaultHold = 500 * time.Millisecond
	// heldEvents bounds the events that wait for their samples: 20 MB at most.
	heldEvents = 100_000
)

// Attributor gives samples their retransmissions and causes while a run goes on. Its
// memory depends on the rates of calls and events, not on how long the run lasts. Make
// one with NewAttributor; it is not safe for concurrent use.
//
// An event belongs to the call whose two ends it names and in whose time it was; the
// kernel of either end may have sent it, and Server says which. Where several calls of
// one connection were under way, it held up all of them: each has it, and all but the
// first one that ended have it marked as Shared. Those of a moment after the call (its
// connection's closing) are kept too, up to the next call on that connection.
//
// The cause is the one whose retransmissions ended the most waiting. An event ends
// the wait since the call's previous event, or since the handshake's end, or since
// the call's start, whichever is latest, so that the waits never overlap. A TLP that
// an RTO of the same end follows ended nothing, since it was lost as well (had it
// arrived, the next loss would begin with another TLP): the RTO ended both waits.
// Time after the last event that its timer cannot account for (more than the
// threshold, and than three times the longest wait) counts against them as a wait of
// its own.
//
// Drops, the packets that a fault itself says it dropped, go to calls by the same rules;
// each is answered by the next retransmission of the end that had sent it.
//
// Where an end's packets waited for the next hop's link-layer address meanwhile, that part of
// a wait is Neighbour's.
//
// That wait, and a slow call without an event, are explained by the socket's own
// counts (see Sample.Info: SYN retransmissions from the connect's duration, RTO
// from TotalRTO; a TLP cannot be told there), else by the call's
// dropped packets (a SYN explains a handshake of 0.9 s or more, and is Dropped where that had no
// end; data is Dropped), else
// as Neighbour when the handshake took 0.9 s or more although both ends were watched, but
// for their neighbours, and no SYN was repeated, else as ServerDown where a
// fault had the server's processes stopped or ended for half of the time or more, else as Queueing where the packets' own round trips, or what a
// proxy's toxics hold, account for half of the time or more (see Queueing), else Unknown.
//
// Each attempt of a policy is explained by its own connection. Of a slow call with
// attempts, the cause is that of the attempt that lasted longest, which may be below the
// threshold itself; or PolicyWait, when the time in which no attempt was under way is
// longer than that one: a wait between two attempts is the client's decision, and no
// network's, even where the network was the reason for it. What the network did to the
// attempts is said at them. A call that its policy refused before the first attempt asked
// nobody: it is counted as rejected, and is no slow call, however long it waited.
type Attributor struct {
	a Attribution
	// flows have the events and the calls of each connection.
	flows map[flow]*evidence
	// waiting are the events in the order of their arrival.
	waiting []arrival
	most    int
	dropped int
	// hops are the two ends' waits for their neighbours, in the order of their beginnings.
	hops []NeighbourWait
	// held are samples in the order of their arrival.
	held []Sample
}

// flow is a connection, the same whichever end names it.
type flow struct{ low, high netip.AddrPort }

func flowOf(a, b netip.AddrPort) flow {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	return flow{a, b}
}

// evidence is what is known of one connection.
type evidence struct {
	events []event   // by time
	drops  []dropped // by time
	starts []int64   // of its samples that are held, in order
}

type event struct {
	Retransmission
	// taken says that it is in a sample already, within the call's time.
	taken bool
}

type arrival struct {
	timeNS int64
	flow   flow
}

// NewAttributor returns an empty one.
func NewAttributor(a Attribution) *Attributor {
	def(&a.Threshold, SlowThreshold)
	def(&a.Hold, defaultHold)
	def(&a.Longest, MaxTimeout)
	return &Attributor{a: a, flows: map[flow]*evidence{}, most: heldEvents}
}

// NotTraced says that from now on no event no longer means no retransmission: some
// were lost.
func (t *Attributor) NotTraced() { t.a.Traced = false }

// Dropped counts the events and drops that were forgotten because too many waited for
// samples, and that no sample had yet.
func (t *Attributor) Dropped() int { return t.dropped }

// Event takes an event, in any order. It is to come before the Flush that makes its call
// final.
func (t *Attributor) Event(e Retransmission) {
	if !t.watched(e.Cookie) {
		return
	}
	t.makeRoom()
	f := flowOf(e.Local, e.Remote)
	t.waiting = append(t.waiting, arrival{e.TimeNS, f})
	t.of(f).insert(event{Retransmission: e})
}

// makeRoom forgets the oldest where too much waits. What a call has already is no loss.
func (t *Attributor) makeRoom() {
	if len(t.waiting) < t.most {
		return
	}
	a := t.waiting[0]
	if x := t.flows[a.flow]; x != nil {
		for _, e := range x.events[:x.from(a.timeNS+1)] {
			if !e.taken {
				t.dropped++
			}
		}
		for _, d := range x.drops[:x.dropsFrom(a.timeNS+1)] {
			if !d.taken {
				t.dropped++
			}
		}
	}
	t.forget(a)
	t.waiting = t.waiting[1:]
}

// insert keeps the events in the order of their times, in which most of them come.
func (x *evidence) insert(e event) {
	i := len(x.events)
	for i > 0 && x.events[i-1].TimeNS > e.TimeNS {
		i--
	}
	x.events = slices.Insert(x.events, i, e)
}

// from is the first event at or after a time.
func (x *evidence) from(timeNS int64) int {
	i, _ := slices.BinarySearchFunc(x.events, timeNS, func(e event, t int64) int { return cmp.Compare(e.TimeNS, t) })
	return i
}

func (t *Attributor) watched(cookie uint64) bool {
	return t.a.ClientCookie == 0 || t.a.ServerCookie == 0 || cookie == t.a.ClientCookie || cookie == t.a.ServerCookie
}

func (t *Attributor) of(f flow) *evidence {
	if t.flows[f] == nil {
		t.flows[f] = &evidence{}
	}
	return t.flows[f]
}

// Add takes a sample whose call has ended.
func (t *Attributor) Add(s Sample) {
	each(&s, func(part *Sample) {
		part.Events, part.Drops, part.Neighbours, part.Cause = nil, nil, nil, ""
		if connected(part) {
			t.of(flowOf(part.Local, part.Remote)).hold(part.StartNS)
		}
	})
	t.held = append(t.held, s)
}

// each is called with what has a connection of its own: the call, or its attempts.
func each(s *Sample, f func(*Sample)) {
	if len(s.Attempts) == 0 {
		f(s)
		return
	}
	s.Events, s.Drops, s.Cause = nil, nil, ""
	for i := range s.Attempts {
		f(&s.Attempts[i])
	}
}

func connected(s *Sample) bool { return s.Local.IsValid() && s.Remote.IsValid() }

// Flush returns the samples that are final at a time on the clock of samples, in the
// order in which they were added: those that ended Hold ago. Every event until then has
// to be in. math.MaxInt64 is the end of the run.
func (t *Attributor) Flush(now int64) []Sample {
	horizon := int64(math.MaxInt64)
	if now != math.MaxInt64 {
		horizon = now - int64(t.a.Hold)
	}
	n := 0
	for i := range t.held {
		if t.held[i].EndNS <= horizon {
			n++
		}
	}
	final, rest := make([]Sample, 0, n), t.held[:0]
	for i := range t.held {
		if s := &t.held[i]; s.EndNS > horizon {
			rest = append(rest, *s)
		} else {
			t.finish(s)
			final = append(final, *s)
		}
	}
	clear(t.held[len(rest):]) // their events are no longer ours
	t.held = rest
	old := horizon
	if now != math.MaxInt64 {
		// a call that has just ended may have had it at its very beginning
		old = horizon - int64(t.a.Longest) - int64(time.Second)
	}
	t.forgetHops(old)
	n = 0
	for n < len(t.waiting) && t.waiting[n].timeNS < old {
		t.forget(t.waiting[n])
		n++
	}
	if n > 0 {
		t.waiting = slices.Clone(t.waiting[n:]) // the array would keep growing at its end
	}
	return final
}

// forget drops a connection's events up to one.
func (t *Attributor) forget(a arrival) {
	x := t.flows[a.flow]
	if x == nil {
		return
	}
	x.events = x.events[x.from(a.timeNS+1):]
	x.drops = x.drops[x.dropsFrom(a.timeNS+1):]
	t.clean(a.flow, x)
}

func (t *Attributor) clean(f flow, x *evidence) {
	if len(x.events) == 0 && len(x.drops) == 0 && len(x.starts) == 0 {
		delete(t.flows, f)
	}
}

// finish makes a sample final.
func (t *Attributor) finish(s *Sample) {
	each(s, t.take)
	each(s, t.takeHops)
	if s.unasked() {
		return
	}
	limit := t.a.Threshold
	each(s, func(part *Sample) {
		if part.Duration() > limit {
			part.Cause = t.a.cause(part)
		}
	})
	if s.Duration() <= limit || len(s.Attempts) == 0 {
		return
	}
	longest := slices.MaxFunc(s.Attempts, func(x, y Sample) int { return cmp.Compare(x.Duration(), y.Duration()) })
	if idle(s) > longest.Duration() {
		s.Cause = PolicyWait
		return
	}
	s.Cause = t.a.cause(&longest)
}

// take gives a call or an attempt the events of its connection.
func (t *Attributor) take(s *Sample) {
	if !connected(s) {
		return
	}
	f := flowOf(s.Local, s.Remote)
	x := t.flows[f]
	if x == nil {
		return
	}
	x.release(s.StartNS)
	var next int64 // when the next call of the connection began, once it is asked for
	for i := x.from(s.StartNS); i < len(x.events); i++ {
		e := &x.events[i]
		if e.TimeNS > s.EndNS {
			if next == 0 {
				next = x.next(s.StartNS)
			}
			if e.TimeNS >= next || e.TimeNS-s.EndNS > int64(t.a.Hold) {
				break
			}
			if e.taken {
				continue
			}
		}
		mine := e.Retransmission
		mine.Server = e.Local != s.Local
		cookie := t.a.ClientCookie
		if mine.Server {
			cookie = t.a.ServerCookie
		}
		if cookie != 0 && e.Cookie != cookie {
			continue
		}
		if e.TimeNS <= s.EndNS {
			mine.Shared = e.taken
			e.taken = true
		}
		s.Events = append(s.Events, mine)
	}
	t.takeDrops(s, x)
	t.clean(f, x)
}

// hold notes the start of a sample that is held. Samples come in the order of their
// ends, so its place is mostly near the end.
func (x *evidence) hold(start int64) {
	i := len(x.starts)
	for i > 0 && x.starts[i-1] > start {
		i--
	}
	x.starts = slices.Insert(x.starts, i, start)
}

// release forgets one, mostly one of the first: what is before it moves, not what is
// after it.
func (x *evidence) release(start int64) {
	if i, ok := slices.BinarySearch(x.starts, start); ok {
		copy(x.starts[1:i+1], x.starts[:i])
		x.starts = x.starts[1:]
	}
}

// next is when the first held call after one began.
func (x *evidence) next(start int64) int64 {
	if i, _ := slices.BinarySearch(x.starts, start+1); i < len(x.starts) {
		return x.starts[i]
	}
	return math.MaxInt64
}

// idle is the part of a call's time in which none of its attempts was under way.
func idle(s *Sample) time.Duration {
	parts := slices.Clone(s.Attempts)
	slices.SortFunc(parts, func(a, b Sample) int { return cmp.Compare(a.StartNS, b.StartNS) })
	var sum int64
	until := s.StartNS
	for _, a := range parts {
		sum += max(0, min(a.StartNS, s.EndNS)-until)
		until = max(until, a.EndNS)
	}
	return time.Duration(sum + max(0, s.EndNS-until))
}
