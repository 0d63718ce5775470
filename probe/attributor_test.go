package probe

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestWhileItRuns: causes that are given while a run goes on are those that are given
// when all is over, as long as every event is there in time.
func TestWhileItRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	causes := []Cause{RTO, SYNRetransmit, TLP, FastRetransmit}
	var samples []Sample
	var events []Retransmission
	for i := range 400 {
		local := netip.AddrPortFrom(clientEnd.Addr(), uint16(40000+i%40)) // ports are used again, one call after the other
		s := Sample{Seq: i, StartNS: int64(i/40) * 4e9, Local: local, Remote: serverEnd, Class: OK}
		s.StartNS += r.Int64N(1e9)
		s.EndNS = s.StartNS + r.Int64N(2e9)
		s.ConnectNS = r.Int64N(s.EndNS - s.StartNS + 1)
		samples = append(samples, s)
		for range r.IntN(4) {
			e := Retransmission{TimeNS: s.StartNS + r.Int64N(s.EndNS-s.StartNS+2e8), Cookie: clientCookie, Local: local, Remote: serverEnd, Cause: causes[r.IntN(4)]}
			if r.IntN(3) == 0 {
				e.Cookie, e.Local, e.Remote = serverCookie, serverEnd, local
			}
			events = append(events, e)
		}
	}
	a := Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie, Longest: 2 * time.Second}
	want := slices.Clone(samples)
	Attribute(want, events, a)

	slices.SortFunc(samples, func(x, y Sample) int { return int(x.EndNS - y.EndNS) })
	slices.SortFunc(events, func(x, y Retransmission) int { return int(x.TimeNS - y.TimeNS) })
	attr := NewAttributor(a)
	var got []Sample
	for now := int64(0); len(got) < len(want) && now < 60e9; now += 25e7 {
		for len(samples) > 0 && samples[0].EndNS <= now {
			attr.Add(samples[0])
			samples = samples[1:]
		}
		for len(events) > 0 && events[0].TimeNS <= now {
			attr.Event(events[0])
			events = events[1:]
		}
		for _, s := range attr.Flush(now) {
			if age := now - s.EndNS; age < int64(defaultHold) || age > int64(defaultHold)+25e7 {
				t.Errorf("sample %d is final %v after its end", s.Seq, time.Duration(age))
			}
			got = append(got, s)
		}
	}
	got = append(got, attr.Flush(math.MaxInt64)...)
	BySeq(got)
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("samples (-at the end +meanwhile):\n%s", d)
	}
}

// TestSharedConnection: an event holds up every call that is under way on its
// connection, and is counted once.
func TestSharedConnection(t *testing.T) {
	call := func(start, end int64) Sample {
		return Sample{StartNS: start * ms, EndNS: end * ms, Local: clientEnd, Remote: serverEnd, Class: OK, Reused: true}
	}
	samples := []Sample{call(0, 400), call(100, 410), call(500, 505), call(600, 900)}
	Attribute(samples, []Retransmission{again(390, RTO), again(700, TLP)}, Attribution{Traced: true})
	for i, want := range []Cause{RTO, RTO, "", TLP} {
		if samples[i].Cause != want {
			t.Errorf("call %d: cause %q, want %q", i, samples[i].Cause, want)
		}
	}
	s := Summarize("t", "", samples, "")
	if s.Retransmissions[RTO] != 1 || s.Retransmissions[TLP] != 1 {
		t.Errorf("retransmissions %v, want one of each", s.Retransmissions)
	}
}

// TestAttempts: each attempt has its own cause, and the call that of what was waited for
// longest.
func TestAttempts(t *testing.T) {
	attempt := func(start, end int64, local netip.AddrPort) Sample {
		return Sample{StartNS: start * ms, EndNS: end * ms, ConnectNS: ms, Local: local, Remote: serverEnd, Class: Timeout}
	}
	call := func(end int64, attempts ...Sample) Sample {
		return Sample{EndNS: end * ms, Class: OK, Attempts: attempts, Policy: []PolicyEvent{{Policy: "retry"}}}
	}
	on := func(local netip.AddrPort, at int64, c Cause) Retransmission {
		e := again(at, c)
		e.Local = local
		return e
	}
	tests := []struct {
		name   string
		call   Sample
		events []Retransmission
		want   Cause
		each   []Cause
	}{
		{"the longest attempt", call(1000, attempt(0, 300, clientEnd), attempt(310, 1000, clientEnd2)),
			[]Retransmission{on(clientEnd, 210, TLP), on(clientEnd2, 940, RTO)}, RTO, []Cause{TLP, RTO}},
		{"backoff is no network's", call(1000, attempt(0, 200, clientEnd), attempt(900, 1000, clientEnd2)),
			[]Retransmission{on(clientEnd, 190, TLP)}, PolicyWait, []Cause{TLP, ""}},
		{"attempts below the threshold", call(300, attempt(0, 100, clientEnd), attempt(100, 200, clientEnd2), attempt(200, 300, clientEnd2)),
			[]Retransmission{on(clientEnd, 95, TLP)}, TLP, []Cause{"", "", ""}},
		{"a hedge runs beside", call(500, attempt(0, 480, clientEnd), attempt(250, 500, clientEnd2)),
			[]Retransmission{on(clientEnd, 470, RTO)}, RTO, []Cause{RTO, Unknown}},
		{"none was made", rejected(call(400)), nil, "", nil},
		{"fast in spite of its attempts", call(100, attempt(0, 50, clientEnd)), []Retransmission{on(clientEnd, 40, TLP)}, "", []Cause{""}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			samples := []Sample{test.call}
			Attribute(samples, test.events, Attribution{Traced: true})
			got := samples[0]
			var each []Cause
			for _, a := range got.Attempts {
				each = append(each, a.Cause)
			}
			if got.Cause != test.want || !slices.Equal(each, test.each) || len(got.Events) != 0 {
				t.Errorf("cause %q of attempts %q with %d events of its own, want %q of %q", got.Cause, each, len(got.Events), test.want, test.each)
			}
		})
	}
}

// TestTooManyEvents: those that wait for no sample are forgotten, and counted.
func TestTooManyEvents(t *testing.T) {
	a := NewAttributor(Attribution{Longest: time.Second})
	for i := range heldEvents + 10 {
		e := again(0, TLP)
		e.TimeNS = int64(i)
		a.Event(e)
	}
	if a.Dropped() != 10 || len(a.waiting) != heldEvents {
		t.Errorf("%d dropped, %d held", a.Dropped(), len(a.waiting))
	}
	a.Flush(3e9)
	if len(a.waiting) != 0 || len(a.flows) != 0 {
		t.Errorf("%d events of %d connections are still held", len(a.waiting), len(a.flows))
	}
}

func rejected(s Sample) Sample {
	s.Class = Rejected
	return s
}
