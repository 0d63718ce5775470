package probe

import (
	"net/netip"
	"testing"
)

// TestNeighbourWaits: what waited for a next hop at either end is a neighbour's, and the
// rest is what it was. Times are in ms.
func TestNeighbourWaits(t *testing.T) {
	const ask, known, failed = 1, 2, 3
	type step struct {
		at     int64
		what   int
		server bool
	}
	watched := Attribution{Traced: true, NeighboursTraced: true, ClientCookie: clientCookie, ServerCookie: serverCookie, ClientHop: serverEnd.Addr(), ServerHop: clientEnd.Addr()}
	syn := func(at ...int64) (e []Retransmission) {
		for _, x := range at {
			e = append(e, again(x, SYNRetransmit))
		}
		return e
	}
	for _, test := range []struct {
		name          string
		took, connect int64
		steps         []step
		events        []Retransmission
		want          Cause
		waits         int
	}{
		{"resolved late, and SYNs repeated meanwhile", 2003, 2001, []step{{0, ask, false}, {1000, ask, false}, {2000, known, false}}, syn(1000, 2000), Neighbour, 1},
		{"failed", 3100, 0, []step{{0, ask, false}, {3060, failed, false}}, syn(1000, 2000, 3000), Neighbour, 1},
		{"failed twice, with TCP's own pause between", 8000, 0, []step{{0, ask, false}, {3060, failed, false}, {4000, ask, false}, {7060, failed, false}}, syn(1000, 2000, 3000, 4000), Neighbour, 2},
		{"failed early, and then data was lost", 2500, 2, []step{{-4000, ask, false}, {-900, failed, false}}, []Retransmission{again(210, TLP), again(2000, RTO)}, RTO, 0},
		{"never ended", 3100, 0, []step{{0, ask, false}}, syn(1000, 2000, 3000), Neighbour, 1},
		{"the server's", 2003, 2001, []step{{1, ask, true}, {1990, known, true}}, syn(1000), Neighbour, 1},
		{"both ends'", 2003, 2001, []step{{0, ask, false}, {1, ask, true}, {900, known, false}, {1990, known, true}}, syn(1000), Neighbour, 2},
		{"less than the SYN's wait", 1003, 1001, []step{{0, ask, false}, {300, known, false}}, syn(1000), SYNRetransmit, 1},
		{"without a retransmission", 400, 390, []step{{0, ask, false}, {380, known, false}}, nil, Neighbour, 1},
		{"a small part", 400, 50, []step{{0, ask, false}, {40, known, false}}, nil, Unknown, 1},
		{"before the call", 400, 50, []step{{-500, ask, false}, {-100, known, false}}, nil, Unknown, 0},
		{"an answer that nobody waits for", 400, 50, []step{{100, known, false}}, nil, Unknown, 0},
		{"none, and watched", 1003, 950, nil, nil, Unknown, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := NewAttributor(watched)
			for _, s := range test.steps {
				e := NeighbourEvent{TimeNS: (10_000 + s.at) * ms, Cookie: clientCookie, Address: serverEnd.Addr(), Waiting: s.what == ask, Failed: s.what == failed}
				if s.server {
					e.Cookie, e.Address = serverCookie, clientEnd.Addr()
				}
				a.Neighbour(e)
				other := e
				other.Waiting, other.Address = true, netip.MustParseAddr("10.77.0.9")
				a.Neighbour(other)
			}
			for _, e := range test.events {
				e.TimeNS += 10_000 * ms
				a.Event(e)
			}
			a.Add(Sample{StartNS: 10_000 * ms, EndNS: (10_000 + test.took) * ms, ConnectNS: test.connect * ms, Local: clientEnd, Remote: serverEnd})
			s := a.Flush((20_000 + test.took) * ms)[0]
			if s.Cause != test.want || len(s.Neighbours) != test.waits {
				t.Errorf("cause %s with %+v, want %s with %d", s.Cause, s.Neighbours, test.want, test.waits)
			}
			a.Flush(1e9 * ms)
			for _, w := range a.hops {
				if w.UntilNS != 0 {
					t.Errorf("kept after all calls: %+v", w)
				}
			}
		})
	}
}
