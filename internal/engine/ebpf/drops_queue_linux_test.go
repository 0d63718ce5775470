package ebpf

import (
	"testing"

	"netemd/qdisc"
)

// What a queue throws away is recorded like what is dropped in the kernel.
func TestRecordQueueDrops(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		for name, n := range map[string]qdisc.Netem{
			"loss and delay": {Loss: 50, Seed: 5, Delay: ms},
			"a full queue":   {Delay: 300 * ms, Limit: 20},
		} {
			t.Run(name, func(t *testing.T) {
				l, e := newLab(t), newEngine(t, cfg)
				p := onPort(l.place)
				f := l.newFlow(t, client4, server4, 0, port)
				set(t, e, p, n)
				r, err := e.RecordDrops()
				if err != nil {
					t.Fatal(err)
				}
				atEnd(t, r.Close)
				from := now()
				f.burst(200)
				until := now()
				c := counters(t, e, p)
				gone := c.Lost + c.Overflow + c.Late
				records, missed, err := r.Drain(ctx)
				if err != nil || uint64(len(records))+missed != gone || len(records) == 0 || missed != 0 {
					t.Fatalf("%d records, %d missed, %v; want %d of %+v", len(records), missed, err, gone, c)
				}
				recordsOfBurst(t, records, int64(from), int64(until))
			})
		}
	})
}

// A segment of a super-packet is recorded as it would be if it had come alone.
func TestRecordOfSegments(t *testing.T) {
	for _, version := range []int{4, 6} {
		for _, tagged := range []bool{false, true} {
			frame := superFrame(version, tagged, 12, 1000, 2500, 0x18)
			s, ok := superOf(frame)
			if !ok || s.count != 3 {
				t.Fatalf("%d segments", s.count)
			}
			for first := range s.count {
				for end := first + 1; end <= s.count; end++ {
					part := make([]byte, vnetHeader+s.size(first, end))
					s.cut(part, first, end)
					want, alone := recordOf(part, 0, end-first)
					got, ok := recordOf(frame, first, end)
					want.Flags = got.Flags // only the last segment keeps some
					if !ok || !alone || got != want || got.Segments != uint32(end-first) || got.Payload == 0 {
						t.Errorf("IPv%d, tagged %v, %d to %d: %+v, %v, want %+v", version, tagged, first, end, got, ok, want)
					}
				}
			}
		}
	}
	frame := superFrame(4, false, 0, 1000, 2000, 0x18)
	for name, spoil := range map[string]func(ip []byte){
		"a fragment":         func(ip []byte) { ip[6] = 0x20 },
		"another protocol":   func(ip []byte) { ip[9] = 1 },
		"longer than it is":  func(ip []byte) { ip[2] = 0xff },
		"a header too short": func(ip []byte) { ip[0] = 0x41 },
	} {
		b := append([]byte(nil), frame...)
		spoil(b[vnetHeader+14:])
		if r, ok := recordOf(b, 0, 1); ok {
			t.Errorf("%s is recorded: %+v", name, r)
		}
	}
}
