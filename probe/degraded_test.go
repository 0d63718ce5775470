package probe

import (
	"testing"
	"time"
)

// TestDegraded: what a fallback answers is counted, and measures nothing.
func TestDegraded(t *testing.T) {
	r := NewRecorder("t", LayerProxy, SlowThreshold)
	r.Add(of(10 * time.Millisecond))
	for range 99 {
		s := of(time.Microsecond)
		s.Degraded, s.Policy = "default", []PolicyEvent{{Policy: "fallback", Event: "used"}}
		r.Add(s)
	}
	tried := of(20 * time.Millisecond)
	tried.Degraded, tried.Attempts = "cached", []Sample{{Class: Timeout, StartNS: 1, EndNS: 20_000_000}}
	r.Add(tried)
	s := r.Summary("")
	if s.Count != 101 || s.OK != 101 || s.Degraded != 100 || s.Rejected != 99 || s.Attempts != 2 {
		t.Errorf("%+v", s)
	}
	if *s.P50 != 10 || *s.Max != 10 || *s.Service.Max != 10 {
		t.Errorf("p50 %v, largest %v, service %v", *s.P50, *s.Max, *s.Service.Max)
	}
}

// TestReplayed: what a transport sent again is an attempt of its own, and the call's cause is
// the network's.
func TestReplayed(t *testing.T) {
	s := connection(1, 300*time.Millisecond)
	s.Policy = []PolicyEvent{{Policy: PolicyTransport, Event: EventReplayed}}
	final := Sample{}
	a := NewAttributor(Attribution{Traced: true})
	a.Event(Retransmission{TimeNS: 1 + int64(200*time.Millisecond), Local: s.Local, Remote: s.Remote, Cause: RTO})
	a.Add(s)
	for _, x := range a.Flush(int64(time.Hour)) {
		final = x
	}
	if final.Cause != RTO {
		t.Errorf("cause %q", final.Cause)
	}
	r := NewRecorder("t", LayerDirect, SlowThreshold)
	r.Add(final)
	if got := r.Summary(""); got.Attempts != 2 || got.Policy[PolicyTransport][EventReplayed] != 1 {
		t.Errorf("%+v", got)
	}
}

// TestRoomForDrops: the oldest goes where too much waits, and what a call has already is no
// loss.
func TestRoomForDrops(t *testing.T) {
	a := NewAttributor(Attribution{})
	a.most = 3
	s := connection(1, 10*time.Millisecond)
	for i := range 3 {
		a.Drop(Drop{TimeNS: int64(2 + i), Source: s.Local, Destination: s.Remote, Kind: DropData, Bytes: 1})
	}
	a.Add(s)
	if got := a.Flush(int64(time.Second) * 2); len(got) != 1 || len(got[0].Drops) != 3 {
		t.Fatalf("%+v", got)
	}
	later := connection(int64(3*time.Second), 10*time.Millisecond)
	for i := range 4 {
		a.Drop(Drop{TimeNS: later.StartNS + int64(i), Source: s.Local, Destination: s.Remote, Kind: DropData, Bytes: 1})
	}
	if a.Dropped() != 1 { // three were taken, and the first of the four was not
		t.Errorf("%d lost", a.Dropped())
	}
	a.Add(later)
	if got := a.Flush(int64(time.Hour)); len(got) != 1 || len(got[0].Drops) != 3 {
		t.Errorf("%+v", got)
	}
}

// connection is a call on a connection of its own.
func connection(start int64, d time.Duration) Sample {
	return Sample{
		StartNS: start, EndNS: start + int64(d), Class: OK, ConnectNS: 1,
		Local: clientEnd, Remote: serverEnd,
	}
}
