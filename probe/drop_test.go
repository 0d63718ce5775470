package probe

import (
	"testing"
)

// gone is a packet of the client's that a fault dropped, at ms after the call's start.
func gone(at int64, kind string) Drop {
	return Drop{TimeNS: at * ms, Source: clientEnd, Destination: serverEnd, Kind: kind}
}

// farGone is one of the server's.
func farGone(at int64, kind string) Drop {
	return Drop{TimeNS: at * ms, Source: serverEnd, Destination: clientEnd, Kind: kind}
}

func TestDropKind(t *testing.T) {
	for _, test := range []struct {
		flags   uint8
		payload int
		want    string
	}{
		{0x02, 0, DropSYN}, {0xc2, 0, DropSYN}, {0x12, 0, DropSYNACK}, {0x52, 0, DropSYNACK}, {0x10, 0, DropACK}, {0x18, 5, DropData},
		{0x11, 0, DropFIN}, {0x19, 5, DropData}, {0x14, 0, DropRST}, {0x04, 0, DropRST},
	} {
		if got := DropKind(test.flags, test.payload); got != test.want {
			t.Errorf("flags %#x with %d bytes: %s, want %s", test.flags, test.payload, got, test.want)
		}
	}
}

// TestDrops is one call each; times are in ms.
func TestDrops(t *testing.T) {
	traced := Attribution{Traced: true, ClientCookie: clientCookie, ServerCookie: serverCookie}
	tests := []struct {
		name                  string
		took, connect         int64
		class                 Class
		info                  *TCPInfo
		drops                 []Drop
		events                []Retransmission
		a                     Attribution
		want                  Cause
		recorded, needs, answ int
	}{
		{name: "SYN and its repetition", took: 1003, connect: 1001, drops: []Drop{gone(0, DropSYN)}, events: []Retransmission{again(1000, SYNRetransmit)},
			a: traced, want: SYNRetransmit, recorded: 1, needs: 1, answ: 1},
		{name: "the repetition is dropped, too", took: 2003, connect: 2001, drops: []Drop{gone(0, DropSYN), gone(1000, DropSYN)},
			events: []Retransmission{again(1000, SYNRetransmit), again(2000, SYNRetransmit)}, a: traced, want: SYNRetransmit, recorded: 2, needs: 2, answ: 2},
		{name: "an end answers for itself only", took: 400, connect: 1, drops: []Drop{farGone(2, DropData)}, events: []Retransmission{again(210, TLP)},
			a: traced, want: TLP, recorded: 1, needs: 1},
		{name: "an acknowledgement is not repeated", took: 220, connect: 1, drops: []Drop{farGone(2, DropACK)}, events: []Retransmission{again(210, TLP)},
			a: traced, want: TLP, recorded: 1},
		{name: "nothing but the drop of a SYN", took: 1003, connect: 1001, drops: []Drop{gone(0, DropSYN)}, want: SYNRetransmit, recorded: 1, needs: 1},
		{name: "the drop of a SYN, and nobody saw another one", took: 1000, class: Timeout, drops: []Drop{gone(0, DropSYN)}, a: traced, want: Dropped, recorded: 1},
		{name: "the drop of a SYN, and nobody could see another one", took: 1500, class: Timeout, drops: []Drop{gone(0, DropSYN)}, want: SYNRetransmit, recorded: 1},
		{name: "the drop of a SYN, too early for another one", took: 800, class: Timeout, drops: []Drop{gone(0, DropSYN)}, want: Dropped, recorded: 1},
		{name: "nothing but the drop of a SYN, traced: no neighbour", took: 1003, connect: 1001, drops: []Drop{gone(0, DropSYN)}, a: traced,
			want: SYNRetransmit, recorded: 1, needs: 1},
		{name: "a probe or a fast retransmission, and data was dropped", took: 220, connect: 1, info: &TCPInfo{TotalRetransmits: 1},
			drops: []Drop{gone(2, DropData)}, want: Dropped, recorded: 1, needs: 1},
		{name: "gave up before the first timer", took: 180, connect: 1, class: Timeout, drops: []Drop{gone(2, DropData)}, a: traced, want: Dropped, recorded: 1},
		{name: "an acknowledgement alone explains nothing", took: 220, connect: 1, drops: []Drop{gone(2, DropACK)}, a: traced, want: Unknown, recorded: 1},
		{name: "of the closing", took: 220, connect: 1, drops: []Drop{gone(221, DropFIN)}, a: traced, want: Unknown, recorded: 1},
		{name: "before the call", took: 220, connect: 1, drops: []Drop{gone(-1, DropData)}, a: traced, want: Unknown},
		{name: "fast in spite of it", took: 20, connect: 1, drops: []Drop{gone(2, DropACK)}, a: traced, recorded: 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			at := NewAttributor(test.a)
			class := test.class
			if class == "" {
				class = OK
			}
			for _, d := range test.drops {
				at.Drop(d)
			}
			for _, e := range test.events {
				at.Event(e)
			}
			at.Add(Sample{StartNS: 0, EndNS: test.took * ms, ConnectNS: test.connect * ms, Local: clientEnd, Remote: serverEnd, Class: class, Info: test.info})
			final := at.Flush(test.took*ms + int64(defaultHold)*2)
			r := NewRecorder("x", "", SlowThreshold)
			r.Add(final[0])
			got := r.Drops()
			if final[0].Cause != test.want || got.Recorded != test.recorded || got.Repeatable != test.needs || got.Answered != test.answ {
				t.Errorf("cause %q, %+v; want %q, %d recorded, %d repeatable, %d answered", final[0].Cause, got, test.want, test.recorded, test.needs, test.answ)
			}
			at.Flush(1 << 62)
			if len(at.flows) != 0 || len(at.waiting) != 0 {
				t.Errorf("%d flows and %d arrivals are left", len(at.flows), len(at.waiting))
			}
		})
	}
}
