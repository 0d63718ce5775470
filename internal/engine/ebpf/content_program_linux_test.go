package ebpf

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"netemd/internal/content"
	"netemd/internal/match"
	"netemd/internal/target"
	"netemd/internal/testenv"
)

// bench runs a rule's program without a device.
type bench struct {
	t    testing.TB
	hub  *shared[hub]
	page *shared[page]
	ring *ring
	log  *ruleLog
	prog *ebpf.Program
}

func newBench(t testing.TB, r content.Rule) *bench {
	t.Helper()
	testenv.Root(t)
	b := &bench{t: t}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%+v", err)
		}
	}
	check(r.Validate())
	var err error
	b.hub, err = newShared[hub]("netemd_hub")
	check(err)
	t.Cleanup(b.hub.Close)
	b.page, err = newShared[page]("netemd_place")
	check(err)
	t.Cleanup(b.page.Close)
	b.ring, err = newRing(slog.New(slog.DiscardHandler))
	check(err)
	t.Cleanup(func() { _ = b.ring.close() })
	b.log = b.ring.open(9)
	conns, err := newConns()
	check(err)
	t.Cleanup(func() { _ = conns.close() })
	c := classifier{
		hub: b.hub.Map, page: b.page.Map, match: target.Match{}, hook: target.Egress, header: 14, group: 1, rank: 1,
		rule: &r, id: 9, ring: b.ring.m, conns: conns,
	}
	sockets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: 1})
	check(err)
	t.Cleanup(func() { sockets.Close() })
	c.sockets = sockets
	ins, err := c.program()
	check(err)
	b.prog, err = match.Load("netemd_test", ins)
	check(err)
	t.Cleanup(func() { b.prog.Close() })
	b.beat(time.Hour)
	b.page.at.slots[0].deadline.Store(1<<63 - 1)
	b.page.at.active.Store(1)
	return b
}

// beat says that the engine lives for d still.
func (b *bench) beat(d time.Duration) {
	b.hub.at.beat.Store(uint64(now() + int64(d)))
	b.page.at.beat.Store(uint64(now() + int64(d)))
}

// skBuff is struct __sk_buff, of which a test run takes some fields.
type skBuff struct {
	_       [164]byte
	GSOSegs uint32
	_       [8]byte
	GSOSize uint32
	_       [12]byte
}

// run reports whether the program takes a packet.
func (b *bench) run(packet []byte, segs, size uint32) bool {
	b.t.Helper()
	opt := &ebpf.RunOptions{Data: packet}
	if segs > 0 || size > 0 {
		opt.Context = &skBuff{GSOSegs: segs, GSOSize: size}
	}
	ret, err := b.prog.Run(opt)
	if err != nil {
		b.t.Fatal(err)
	}
	switch int32(ret) {
	case 7: // TC_ACT_REDIRECT
		return true
	case verdictNext:
		return false
	}
	b.t.Fatalf("returned %d", int32(ret))
	return false
}

// last is the record of the packet that was taken last.
func (b *bench) last() content.Record {
	b.t.Helper()
	b.log.count(b.page.at)
	l := b.log.read()
	if len(l.Records) == 0 {
		b.t.Fatal("no record")
	}
	return l.Records[len(l.Records)-1]
}

// segment is a TCP segment from 10.0.0.1:from to 10.0.0.2:80.
func segment(from uint16, seq uint32, flags byte, data int) []byte {
	b := []byte("............\x08\x00\x45\x00\x00\x00\x00\x00\x40\x00\x40\x06\x00\x00\x0a\x00\x00\x01\x0a\x00\x00\x02")
	binary.BigEndian.PutUint16(b[16:], uint16(40+data))
	b = binary.BigEndian.AppendUint16(b, from)
	b = append(b, 0, 80)
	b = binary.BigEndian.AppendUint32(b, seq)
	b = append(b, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0)
	return append(b, make([]byte, data)...)
}

// history is what a rule must know of a connection, with numbers that do not wrap.
type history struct {
	isn, next      int64
	segments       int64
	start, end     int64 // of the chosen segment
	hole, holeEnd  int64
	begun, withSYN bool
	found          bool
}

// see says whether a segment is the N-th with data or repeats it, and whether it was
// seen before.
func (h *history) see(n int64, seq, size, span, segs, mss int64, syn bool) (nth, again bool) {
	if !h.begun || syn && (!h.withSYN || h.isn != seq) {
		*h = history{begun: true, withSYN: syn, isn: seq, next: seq}
	}
	end, fresh := seq+span, true
	before := h.next
	h.next = max(h.next, end)
	switch {
	case seq > before:
		h.hole, h.holeEnd = before, seq
	case seq == before:
	case h.hole <= seq && seq < h.holeEnd:
		h.hole = min(end, h.holeEnd)
	default:
		fresh = false
	}
	if size == 0 {
		return false, !fresh
	}
	data := seq
	if syn {
		data++
	}
	overlap := h.found && data < h.end && data+size > h.start
	if !fresh {
		segs = 1
		if end <= before {
			return overlap, true
		}
	}
	first := h.segments + 1
	h.segments += segs
	if first <= n && n <= h.segments {
		h.found = true
		h.start = data + (n-first)*mss
		h.end = data + size
		if n < h.segments {
			h.end = h.start + mss
		}
		return true, !fresh
	}
	return overlap, !fresh
}

// Random histories of connections, with losses before the program, repetitions,
// super-packets and numbers that wrap, are judged as the model says.
func TestTrackingAgrees(t *testing.T) {
	histories := 60
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		histories = 3000
	}
	const n = 4
	data, again := newBench(t, content.Rule{Kind: content.Data, N: n}), newBench(t, content.Rule{Kind: content.Retransmit})
	hits, repeats, total := 0, 0, 0
	for seed := range histories {
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		isn := int64(r.Uint32())
		if r.IntN(2) == 0 { // wraps within the connection
			isn = 1<<32 - int64(r.IntN(5000))
		}
		var h, g history
		end := isn + 1 // what the sender has sent
		from := uint16(1 + seed%60000)
		if r.IntN(3) > 0 {
			packet := segment(from, uint32(isn), 2, 0)
			for range 1 + r.IntN(2) {
				_, want := g.see(n, isn, 0, 1, 1, 0, true)
				h.see(n, isn, 0, 1, 1, 0, true)
				if got := again.run(packet, 0, 0); got != want {
					t.Fatalf("seed %d: SYN: retransmission %t, want %t", seed, got, want)
				}
				if data.run(packet, 0, 0) {
					t.Fatalf("seed %d: a SYN is no data", seed)
				}
			}
		}
		for step := range 40 {
			const mss = 100
			seq := end
			size := int64(one(packets{r}, 1, 50, mss, mss, mss, 250, 1000))
			switch r.IntN(5) {
			case 0: // again, from some place on
				seq = max(isn+1, end-int64(r.IntN(1200)))
			case 1: // something was lost before
				seq += int64(one(packets{r}, 1, 100, 300))
			}
			flags, span := byte(0x10), size
			if r.IntN(20) == 0 {
				flags, span = 0x11, size+1
			}
			if r.IntN(10) == 0 { // an acknowledgement alone
				packet := segment(from, uint32(end), 0x10, 0)
				if data.run(packet, 0, 0) || again.run(packet, 0, 0) {
					t.Fatalf("seed %d, step %d: an ACK was taken", seed, step)
				}
			}
			segs, gso, told := int64(1), uint32(0), uint32(0)
			if size > mss {
				segs, gso = (size+mss-1)/mss, mss
				if r.IntN(2) == 0 {
					told = uint32(segs)
				}
			}
			wantNth, _ := h.see(n, seq, size, span, segs, mss, false)
			_, wantAgain := g.see(n, seq, size, span, segs, mss, false)
			packet := segment(from, uint32(seq), flags, int(size))
			if got := data.run(packet, told, gso); got != wantNth {
				t.Fatalf("seed %d, step %d: %d+%d of %d segments: data %t, want %t: %+v", seed, step, seq-isn, size, segs, got, wantNth, h)
			}
			if got := again.run(packet, told, gso); got != wantAgain {
				t.Fatalf("seed %d, step %d: %d+%d: retransmission %t, want %t: %+v", seed, step, seq-isn, size, got, wantAgain, g)
			}
			if wantNth {
				hits++
				rec := data.last()
				if rec.Sequence != uint32(seq) || int64(rec.Payload) != size || int64(rec.Segments) != segs {
					t.Fatalf("seed %d, step %d: %+v", seed, step, rec)
				}
			}
			if wantAgain {
				repeats++
			}
			total++
			end = max(end, seq+span)
		}
		// The next history may have the same ports: a connection without a SYN would go on.
		data.run(segment(from, uint32(isn)+77, 2, 0), 0, 0)
		again.run(segment(from, uint32(isn)+77, 2, 0), 0, 0)
	}
	t.Logf("%d of %d segments were the wanted one, %d sent again", hits, total, repeats)
	if hits < histories/2 || repeats < total/20 {
		t.Error("this compares little")
	}
}

// A super-packet counts for what it stands for, is taken whole, and the record says so.
func TestSuperPackets(t *testing.T) {
	b := newBench(t, content.Rule{Kind: content.Data, N: 5})
	b.run(segment(1, 99, 2, 0), 0, 0)
	if b.run(segment(1, 100, 0x10, 300), 3, 100) {
		t.Error("segments 1 to 3 were taken")
	}
	if !b.run(segment(1, 400, 0x10, 450), 5, 100) {
		t.Fatal("segments 4 to 8 were not taken")
	}
	if rec := b.last(); rec.Segment != 5 || rec.Segments != 5 || rec.Payload != 450 || rec.Length != 490 || rec.Sequence != 400 {
		t.Errorf("%+v", rec)
	}
	// Sent again one by one, only the fifth is it.
	for i := range uint32(5) {
		if got, want := b.run(segment(1, 400+100*i, 0x10, 50), 0, 0), i == 1; got != want {
			t.Errorf("segment %d again: taken %t", 4+i, got)
		}
	}
	if rec := b.last(); rec.Segment != 5 || rec.Segments != 1 || rec.Sequence != 500 {
		t.Errorf("again: %+v", rec)
	}
	every := newBench(t, content.Rule{Kind: content.Every, N: 10})
	for i, want := range []bool{false, false, true, false, true, false} { // 12 is behind 10, and 20 is it
		if got := every.run(segment(1, 0, 0x10, 400), 4, 100); got != want {
			t.Errorf("packet %d, of segments %d to %d: taken %t", i, 4*i+1, 4*i+4, got)
		}
	}
}

// Count is kept exactly, however many processors come at once, and what the ring cannot
// take is counted.
func TestCountOfManyProcessors(t *testing.T) {
	for _, r := range []content.Rule{
		{Kind: content.Every, N: 3, Count: 20_000},
		{Kind: content.Every, N: 1, Count: 20_001, PerConnection: true},
		{Kind: content.Match, Expr: "tcp.len == 3", Count: 777},
	} {
		b := newBench(t, r)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 20 {
					if _, err := b.prog.Run(&ebpf.RunOptions{Data: segment(5, 1, 0x10, 3), Repeat: 1000}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if got := b.page.at.lost.Load(); got != uint64(r.Count) {
			t.Errorf("%s: %d were taken", r, got)
		}
		b.log.count(b.page.at)
		l := b.log.read()
		t.Logf("%s: %d chosen, %d missed, %d records", r, l.Chosen, l.Missed, len(l.Records))
		if l.Chosen != uint64(r.Count) || b.log.came+l.Missed != l.Chosen || len(l.Records) != min(content.MaxRecords, int(b.log.came)) {
			t.Errorf("%s: chosen %d, missed %d, %d records of %d", r, l.Chosen, l.Missed, len(l.Records), b.log.came)
		}
		for i := 1; i < len(l.Records); i++ {
			if l.Records[i].Time < l.Records[i-1].Time-int64(time.Second) {
				t.Fatalf("record %d is older than the one before", i)
			}
		}
	}
}

// More connections than are remembered: each new one is known all the same.
func TestManyConnections(t *testing.T) {
	n := content.MaxConnections + content.MaxConnections/2
	if testing.Short() {
		n = 5000 // fewer than there is room for
	}
	b := newBench(t, content.Rule{Kind: content.SYN, Count: 1, PerConnection: true})
	for i := range n {
		packet := segment(uint16(i), uint32(i), 2, 0)
		packet[29] = byte(i >> 16) // the source address's last byte
		if !b.run(packet, 0, 0) {
			t.Fatalf("connection %d was not taken", i)
		}
		if i%100 == 99 && b.run(packet, 0, 0) {
			t.Fatalf("connection %d was taken twice", i)
		}
	}
}

// A connection's count begins anew with a new SYN, and not with the same one again.
func TestNewSYN(t *testing.T) {
	for _, tt := range []struct {
		kind    content.Kind
		flags   byte
		expr    string
		carries int
	}{
		{content.RST, 4, "", 0}, {content.FIN, 0x11, "", 0}, {content.Match, 0x10, "tcp.len == 9", 9}, {content.Data, 0x10, "", 1}, {content.SYN, 2, "", 0},
	} {
		r := content.Rule{Kind: tt.kind, Expr: tt.expr, Count: 1, PerConnection: true}
		if tt.kind == content.Data {
			r.N = 1
		}
		b := newBench(t, r)
		for _, isn := range []uint32{5, 1 << 31, 7} {
			packet := segment(1, isn+1, tt.flags, tt.carries)
			if tt.kind == content.SYN {
				packet = segment(1, isn, 2, 0)
			} else {
				b.run(segment(1, isn, 2, 0), 0, 0)
			}
			if !b.run(packet, 0, 0) || b.run(packet, 0, 0) {
				t.Errorf("%s: not once of the connection that began with %d", tt.kind, isn)
			}
			if tt.kind == content.SYN {
				continue
			}
			b.run(segment(1, isn, 2, 0), 0, 0)
			if b.run(packet, 0, 0) {
				t.Errorf("%s: the same SYN began the connection %d anew", tt.kind, isn)
			}
		}
	}
}

// Without a heartbeat the packet passes and costs no turn; what is counted goes on.
func TestRuleOpens(t *testing.T) {
	b := newBench(t, content.Rule{Kind: content.Every, N: 2, Count: 1})
	b.beat(-100 * ms)
	for range 5 {
		if b.run(segment(1, 1, 0x10, 1), 0, 0) {
			t.Error("taken without a heartbeat")
		}
	}
	if got := b.page.at.opened.Load(); got != 2 {
		t.Errorf("%d opened, want the 2 chosen ones", got)
	}
	b.beat(time.Hour)
	if !b.run(segment(1, 1, 0x10, 1), 0, 0) {
		t.Error("the sixth was not taken")
	}
	b.page.at.slots[0].deadline.Store(uint64(now()))
	if b.run(segment(1, 1, 0x10, 1), 0, 0) || b.page.at.seen.Load() != 6 {
		t.Errorf("after the deadline: %d seen", b.page.at.seen.Load())
	}
}

// BenchmarkRule is the cost of a rule's program for one packet.
func BenchmarkRule(b *testing.B) {
	for _, r := range []content.Rule{
		{Kind: content.SYN}, {Kind: content.Match, Expr: "tcp.len > 100 && payload.at(0, \"Q\")"},
		{Kind: content.Every, N: 1 << 31}, {Kind: content.Data, N: 1 << 31},
		{Kind: content.Retransmit}, {Kind: content.Every, N: 1 << 31, PerConnection: true},
	} {
		b.Run(fmt.Sprintf("%s %t", r.What(), r.PerConnection), func(b *testing.B) {
			const repeat = 100_000
			bench := newBench(b, r)
			packet := segment(1, 1, 0x10, 200)
			var total float64
			for b.Loop() {
				_, each, err := bench.prog.Benchmark(packet, repeat, nil)
				if err != nil {
					b.Fatal(err)
				}
				total += float64(each.Nanoseconds())
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(total/float64(b.N), "ns/packet")
		})
	}
}
