package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/ringbuf"

	"netemd/internal/content"
)

const (
	// ringSize is the buffer between the programs and the thread that reads it, in
	// bytes: about 11,000 records.
	ringSize = 1 << 20
	// logsKept is how many logs of rules that are over are kept, and logKept how long.
	logsKept = 16
	logKept  = 10 * time.Minute
	// logWait is how long ContentLog waits for what is still in the ring.
	logWait = 200 * time.Millisecond
)

// ring takes what programs tell about the packets that they chose. Its goroutine sleeps
// while they choose none.
type ring struct {
	m      *ebpf.Map
	reader *ringbuf.Reader
	done   chan struct{}

	mu   sync.Mutex
	logs map[uint32]*ruleLog // by the place's number
}

// ruleLog is what one rule did at one place.
type ruleLog struct {
	id uint32

	mu sync.Mutex
	// records are the last content.MaxRecords, from oldest on and round.
	records []chosen
	oldest  int
	// came counts all that did.
	came uint64
	// chosen and missed are the program's counters at the last look.
	chosen, missed uint64
	// ended is when the rule was cleared.
	ended time.Time
}

func newRing() (*ring, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "netemd_ring", Type: ebpf.RingBuf, MaxEntries: ringSize})
	if err != nil {
		if errors.Is(features.HaveMapType(ebpf.RingBuf), ebpf.ErrNotSupported) {
			return nil, fmt.Errorf("faults on chosen packets need the BPF ring buffer (Linux 5.8): %w (%w)", errors.ErrUnsupported, err)
		}
		return nil, fmt.Errorf("create map netemd_ring: %w", err)
	}
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("read map netemd_ring: %w", err)
	}
	r := &ring{m: m, reader: reader, done: make(chan struct{}), logs: map[uint32]*ruleLog{}}
	go r.run()
	return r, nil
}

func (r *ring) run() {
	defer close(r.done)
	var rec ringbuf.Record
	for {
		if err := r.reader.ReadInto(&rec); err != nil {
			return // closed
		}
		if len(rec.RawSample) < int(unsafe.Sizeof(chosen{})) {
			continue
		}
		c := *(*chosen)(unsafe.Pointer(&rec.RawSample[0]))
		r.mu.Lock()
		l := r.logs[c.Rule]
		r.mu.Unlock()
		if l != nil {
			l.add(c)
		}
	}
}

// open makes a log for the place of that number.
func (r *ring) open(id uint32) *ruleLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &ruleLog{id: id}
	r.logs[id] = l
	return l
}

func (r *ring) drop(l *ruleLog) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.logs, l.id)
}

func (r *ring) close() error {
	err := r.reader.Close()
	<-r.done
	return errors.Join(err, r.m.Close())
}

func (l *ruleLog) add(c chosen) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.came++
	if len(l.records) < content.MaxRecords {
		l.records = append(l.records, c)
		return
	}
	l.records[l.oldest] = c
	l.oldest = (l.oldest + 1) % len(l.records)
}

// count takes over the program's counters.
func (l *ruleLog) count(p *page) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A program counts a packet behind its record, and what it missed before: in this
	// order no record is waited for that will never come.
	l.chosen = p.lost.Load() + p.diverted.Load()
	l.missed = p.missed.Load()
}

// end says that the rule is over, once.
func (l *ruleLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended.IsZero() {
		l.ended = time.Now()
	}
}

func (l *ruleLog) endedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// read waits for what is in the ring and returns what has come out of it.
func (l *ruleLog) read() content.Log {
	for end := time.Now().Add(logWait); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		if l.came+l.missed >= l.chosen || time.Now().After(end) {
			break
		}
		l.mu.Unlock()
	}
	defer l.mu.Unlock()
	out := content.Log{Chosen: max(l.chosen, l.came+l.missed), Missed: l.missed}
	wall := time.Now().Add(-time.Duration(now()))
	for i := range l.records {
		out.Records = append(out.Records, l.records[(l.oldest+i)%len(l.records)].record(wall))
	}
	return out
}

// record says it in the product's words; wall is when CLOCK_MONOTONIC was 0.
func (c *chosen) record(wall time.Time) content.Record {
	return content.Record{
		Time: int64(c.Time), Wall: wall.Add(time.Duration(c.Time)).Round(0),
		Source: c.Key.end(c.Key.Source, c.Key.Ports[:2]), Destination: c.Key.end(c.Key.Destination, c.Key.Ports[2:]),
		Protocol: c.Key.Protocol, Flags: c.Flags, Sequence: c.Sequence, Payload: c.Payload,
		Segment: c.Segment, Length: c.Length, Segments: c.Segments,
	}
}

// end is one end of a connection, empty for what is not IP.
func (k *connKey) end(address [16]byte, port []byte) string {
	var a netip.Addr
	switch k.Family {
	case 4:
		a = netip.AddrFrom4([4]byte(address[:4]))
	case 6:
		a = netip.AddrFrom16(address)
	default:
		return ""
	}
	if k.Ports == ([4]byte{}) {
		return a.String()
	}
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(port)).String()
}
