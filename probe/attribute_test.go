package probe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const ms = int64(time.Millisecond)

var (
	clientEnd  = netip.MustParseAddrPort("10.77.0.1:40000")
	clientEnd2 = netip.MustParseAddrPort("10.77.0.1:40001")
	serverEnd  = netip.MustParseAddrPort("10.77.0.2:5432")
)

const clientCookie, serverCookie = 7, 8

// again is an event of the client's kernel, at ms after the call's start.
func again(at int64, c Cause) Retransmission {
	return Retransmission{TimeNS: at * ms, Cookie: clientCookie, Local: clientEnd, Remote: serverEnd, Cause: c}
}

// farAgain is one of the server's.
func farAgain(at int64, c Cause) Retransmission {
	return Retransmission{TimeNS: at * ms, Cookie: serverCookie, Local: serverEnd, Remote: clientEnd, Cause: c, Server: true}
}

// TestCause is one call each; times are in ms.
func TestCause(t *testing.T) {
	traced := Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie}
	delayed := traced
	delayed.Held = Held{Turn: 50 * time.Millisecond, Least: 50 * time.Millisecond}
	hour := traced
	hour.Held = Held{Turn: time.Hour, Least: time.Hour}
	toxic := traced
	toxic.Held = Held{Turn: 100 * time.Millisecond, Least: 80 * time.Millisecond, Proxy: true}
	tests := []struct {
		name         string
		took         int64
		connect      int64
		turns        int
		class        Class
		info         *TCPInfo
		events       []Retransmission
		a            Attribution
		want         Cause
		wantEventsOf int
	}{
		{name: "fast", took: 3, connect: 1, a: traced, want: ""},
		{name: "fast in spite of an event", took: 40, connect: 1, events: []Retransmission{again(20, TLP)}, a: traced, want: "", wantEventsOf: 1},
		{name: "exactly the threshold", took: 150, connect: 1, a: traced, want: ""},
		{name: "SYN", took: 1003, connect: 1001, events: []Retransmission{again(1000, SYNRetransmit)}, a: traced, want: SYNRetransmit, wantEventsOf: 1},
		{name: "SYN-ACK", took: 1003, connect: 1001, events: []Retransmission{farAgain(1000, SYNRetransmit)}, a: traced, want: SYNRetransmit, wantEventsOf: 1},
		{name: "a SYN that seems to come after the handshake, which began late", took: 1340, connect: 1000, events: []Retransmission{again(1014, SYNRetransmit)}, a: traced, want: SYNRetransmit, wantEventsOf: 1},
		{name: "TLP", took: 220, connect: 1, events: []Retransmission{again(210, TLP)}, a: traced, want: TLP, wantEventsOf: 1},
		{name: "TLP of the server", took: 220, connect: 1, events: []Retransmission{farAgain(210, TLP)}, a: traced, want: TLP, wantEventsOf: 1},
		{name: "RTO ended its lost TLP's wait too", took: 420, connect: 1, events: []Retransmission{again(210, TLP), again(415, RTO)}, a: traced, want: RTO, wantEventsOf: 2},
		{name: "the TLP of the other end was not that RTO's", took: 420, connect: 1, events: []Retransmission{farAgain(210, TLP), again(415, RTO)}, a: traced, want: TLP, wantEventsOf: 2},
		{name: "a repeated RTO takes the TLP's wait once", took: 2000, connect: 1001,
			events: []Retransmission{again(1000, SYNRetransmit), again(1205, TLP), again(1410, RTO), again(1900, RTO)}, a: traced, want: SYNRetransmit, wantEventsOf: 4},
		{name: "RTO waited longer than its TLP", took: 640, connect: 1, events: []Retransmission{again(205, TLP), again(630, RTO)}, a: traced, want: RTO, wantEventsOf: 2},
		{name: "three TLPs waited longer than an RTO and its TLP", took: 1100, connect: 1,
			events: []Retransmission{again(205, TLP), again(410, TLP), again(620, TLP), again(830, TLP), again(1035, RTO)}, a: traced, want: TLP, wantEventsOf: 5},
		{name: "the handshake is not the RTO's wait", took: 1420, connect: 1001,
			events: []Retransmission{again(1000, SYNRetransmit), again(1215, RTO)}, a: traced, want: SYNRetransmit, wantEventsOf: 2},
		{name: "RTO longer than SYN", took: 3000, connect: 1001,
			events: []Retransmission{again(1000, SYNRetransmit), again(1215, TLP), again(2900, RTO)}, a: traced, want: RTO, wantEventsOf: 3},
		{name: "order of arrival does not matter", took: 640, connect: 1, events: []Retransmission{again(630, RTO), again(205, TLP)}, a: traced, want: RTO, wantEventsOf: 2},
		{name: "never connected", took: 5000, class: Timeout,
			events: []Retransmission{again(1000, SYNRetransmit), again(2000, SYNRetransmit), again(3000, SYNRetransmit), again(4000, SYNRetransmit)}, a: traced, want: SYNRetransmit, wantEventsOf: 4},
		{name: "timed out while backing off", took: 1500, connect: 1, class: Timeout,
			events: []Retransmission{again(205, TLP), again(615, RTO)}, a: traced, want: RTO, wantEventsOf: 2},
		{name: "a hung server after an early probe", took: 5000, connect: 1, class: Timeout, events: []Retransmission{again(6, TLP)}, a: traced, want: Unknown, wantEventsOf: 1},
		{name: "an event after the call's end explains nothing", took: 200, connect: 1, events: []Retransmission{again(500, RTO)}, a: traced, want: Unknown, wantEventsOf: 1},
		{name: "no event", took: 400, connect: 1, a: traced, want: Unknown},
		{name: "round trips are most of it", took: 341, connect: 50, turns: 5, info: &TCPInfo{MinRTTNS: 50 * ms, RTTNS: 51 * ms}, a: traced, want: Queueing},
		{name: "half of it", took: 340, connect: 20, turns: 3, info: &TCPInfo{MinRTTNS: 50 * ms, RTTNS: 51 * ms}, a: traced, want: Queueing},
		{name: "less than half of it", took: 342, connect: 20, turns: 3, info: &TCPInfo{MinRTTNS: 50 * ms, RTTNS: 51 * ms}, a: traced, want: Unknown},
		{name: "a slow server on a fast path", took: 202, connect: 1, turns: 1, info: &TCPInfo{MinRTTNS: 1 * ms / 10, RTTNS: 5 * ms, BusyNS: 40 * ms}, a: traced, want: Unknown},
		{name: "a server that is slow in each turn, and acknowledges late", took: 205, connect: 1, turns: 5, info: &TCPInfo{MinRTTNS: 1 * ms / 10, RTTNS: 40 * ms, BusyNS: 200 * ms}, a: traced, want: Unknown},
		{name: "a slow server behind a delayed path", took: 1000, connect: 50, turns: 3, info: &TCPInfo{MinRTTNS: 50 * ms, RTTNS: 51 * ms, BusyNS: 160 * ms}, a: delayed, want: Unknown},
		{name: "a queue that fills", took: 420, connect: 1, turns: 1, info: &TCPInfo{MinRTTNS: 1 * ms, RTTNS: 180 * ms, BusyNS: 410 * ms}, a: traced, want: Queueing},
		{name: "much data on a fast path", took: 420, connect: 1, turns: 1, info: &TCPInfo{MinRTTNS: 1 * ms, RTTNS: 2 * ms, BusyNS: 410 * ms}, a: traced, want: Unknown},
		{name: "a kept connection since the delay began", took: 201, connect: 0, turns: 1, info: &TCPInfo{MinRTTNS: 1 * ms, RTTNS: 26 * ms, BusyNS: 200 * ms}, a: traced, want: Queueing},
		{name: "no answer to what was sent", took: 400, connect: 100, turns: 0, class: Timeout, info: &TCPInfo{MinRTTNS: 100 * ms, RTTNS: 100 * ms, BusyNS: 300 * ms}, a: traced, want: Queueing},
		{name: "acknowledged, and no answer", took: 400, connect: 1, turns: 0, class: Timeout, info: &TCPInfo{MinRTTNS: 1 * ms, RTTNS: 40 * ms, BusyNS: 40 * ms}, a: traced, want: Unknown},
		{name: "no handshake within the delay", took: 500, class: Timeout, info: &TCPInfo{}, a: hour, want: Queueing},
		{name: "no handshake, and no such delay", took: 500, class: Timeout, info: &TCPInfo{}, a: delayed, want: Unknown},
		{name: "through a proxy that holds each turn", took: 520, connect: 1, turns: 5, info: &TCPInfo{MinRTTNS: 1}, a: toxic, want: Queueing},
		{name: "through it, and the server is slow", took: 1500, connect: 1, turns: 5, info: &TCPInfo{MinRTTNS: 1}, a: toxic, want: Unknown},
		{name: "through it, sooner than it can have held", took: 160, connect: 1, turns: 5, info: &TCPInfo{MinRTTNS: 1}, a: toxic, want: Unknown},
		{name: "through it, and its answer did not come", took: 160, connect: 1, turns: 1, class: Timeout, info: &TCPInfo{MinRTTNS: 1}, a: toxic, want: Queueing},
		{name: "through a narrow proxy", took: 1010, connect: 1, turns: 1, info: &TCPInfo{MinRTTNS: 1, Received: 1000}, a: Attribution{Traced: true, Held: Held{Proxy: true, ReceivedByte: 1e-3}}, want: Queueing},
		{name: "event on a delayed path", took: 641, connect: 50, events: []Retransmission{again(600, RTO)}, a: delayed, want: RTO, wantEventsOf: 1},
		{name: "slow handshake without a SYN sent again", took: 1003, connect: 1001, a: traced, want: Neighbour},
		{name: "the same, delayed", took: 1003, connect: 1001, info: &TCPInfo{}, a: delayed, want: Queueing},
		{name: "the same, not watched", took: 1003, connect: 1001, want: Unknown},
		{name: "foreign namespace, same addresses", took: 220, connect: 1, events: []Retransmission{{TimeNS: 210 * ms, Cookie: 99, Local: clientEnd, Remote: serverEnd, Cause: TLP}}, a: traced, want: Unknown},
		{name: "the other end's namespace", took: 220, connect: 1, events: []Retransmission{{TimeNS: 210 * ms, Cookie: clientCookie, Local: serverEnd, Remote: clientEnd, Cause: TLP}}, a: traced, want: Unknown},
		{name: "another connection", took: 220, connect: 1, events: []Retransmission{{TimeNS: 210 * ms, Cookie: clientCookie, Local: clientEnd2, Remote: serverEnd, Cause: TLP}}, a: traced, want: Unknown},
		{name: "before the call", took: 220, connect: 1, events: []Retransmission{again(-1, TLP)}, a: traced, want: Unknown},

		{name: "socket: never connected", took: 5000, class: Timeout, info: &TCPInfo{TotalRetransmits: 4, Backoff: 4}, want: SYNRetransmit},
		{name: "socket: SYN", took: 1003, connect: 1001, info: &TCPInfo{TotalRetransmits: 1, TotalRTO: 1}, want: SYNRetransmit},
		{name: "socket: SYN, then a longer RTO", took: 2900, connect: 1001, info: &TCPInfo{TotalRetransmits: 3, TotalRTO: 2}, want: RTO},
		{name: "socket: SYN, then longer, which the socket does not say", took: 2900, connect: 1001, info: &TCPInfo{TotalRetransmits: 2, TotalRTO: 1}, want: Unknown},
		{name: "socket: RTO", took: 420, connect: 1, info: &TCPInfo{TotalRetransmits: 2, TotalRTO: 1}, want: RTO},
		{name: "socket: a probe or a fast retransmission", took: 220, connect: 1, info: &TCPInfo{TotalRetransmits: 1}, want: Unknown},
		{name: "socket: nothing", took: 341, connect: 50, info: &TCPInfo{}, want: Unknown},
		{name: "socket: nothing, on a long way", took: 341, connect: 50, turns: 5, info: &TCPInfo{MinRTTNS: 50 * ms}, want: Queueing},
		{name: "socket: a handshake that may have lost its SYN is no long way", took: 1003, connect: 998, turns: 1, info: &TCPInfo{TotalRetransmits: 2, TotalRTO: 1}, want: SYNRetransmit},
		{name: "threshold", took: 60, connect: 1, events: []Retransmission{again(40, TLP)}, a: Attribution{Threshold: 50 * time.Millisecond}, want: TLP, wantEventsOf: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := []Sample{{StartNS: 0, EndNS: test.took * ms, ConnectNS: test.connect * ms, Turns: test.turns, Reused: test.connect == 0 && test.turns > 0, Local: clientEnd, Remote: serverEnd, Class: test.class, Info: test.info}}
			Attribute(s, test.events, test.a)
			if s[0].Cause != test.want || len(s[0].Events) != test.wantEventsOf {
				t.Errorf("cause %q with %d events, want %q with %d", s[0].Cause, len(s[0].Events), test.want, test.wantEventsOf)
			}
		})
	}
}

// TestAttributeJoin has several calls, two of them from the same port.
func TestAttributeJoin(t *testing.T) {
	at := func(seq int, start, end int64, local netip.AddrPort) Sample {
		return Sample{Seq: seq, StartNS: start * ms, EndNS: end * ms, ConnectNS: ms, Local: local, Remote: serverEnd, Class: OK}
	}
	samples := []Sample{
		at(0, 5000, 5300, clientEnd), // the port's second use comes first in the list
		at(1, 0, 300, clientEnd2),
		at(2, 0, 300, clientEnd),
		{Seq: 3, StartNS: 0, EndNS: 300 * ms, Class: Other}, // no socket was made
	}
	second, first, late, far := again(5210, RTO), again(210, TLP), again(400, RTO), farAgain(220, TLP)
	far.Server = false // whoever collected it cannot know
	Attribute(samples, []Retransmission{second, late, far, first}, Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie})
	far.Server = true
	want := []Sample{
		{Seq: 0, Cause: RTO, Events: []Retransmission{second}},
		{Seq: 1, Cause: Unknown},
		{Seq: 2, Cause: TLP, Events: []Retransmission{first, far, late}},
		{Seq: 3, Cause: Unknown},
	}
	addr := cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
	only := cmpopts.IgnoreFields(Sample{}, "StartNS", "EndNS", "ConnectNS", "Local", "Remote", "Class")
	if d := cmp.Diff(want, samples, addr, only); d != "" {
		t.Errorf("samples (-want +got):\n%s", d)
	}
	// a second attribution starts afresh
	Attribute(samples, nil, Attribution{})
	for _, s := range samples {
		if len(s.Events) != 0 || s.Cause != Unknown {
			t.Errorf("second attribution: %+v", s)
		}
	}
}
