package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
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
	// logWait bounds how long ContentLog waits for what is still in the ring: on a busy
	// machine its reader may not run for a while.
	logWait = 2 * time.Second
)

// ring takes what programs tell about the packets that they chose. Its goroutine sleeps
// while they choose none.
type ring struct {
	log    *slog.Logger
	m      *ebpf.Map
	reader ringReader
	done   chan struct{}

	mu        sync.Mutex
	logs      map[uint32]*ruleLog // by the place's number
	following int                 // rules that follow connections
	// broken is set when the reader has failed: no record comes any more.
	broken bool
}

// ringReader is a *ringbuf.Reader.
type ringReader interface {
	ReadInto(*ringbuf.Record) error
	Close() error
}

// ruleLog is what one rule did at one place.
type ruleLog struct {
	id uint32

	mu sync.Mutex
	// records are the last content.MaxRecords, from oldest on and round.
	records []recorded
	oldest  int
	// came counts all that did.
	came uint64
	// chosen, missed and begun are the program's counters at the last look.
	chosen, missed, begun uint64
	// broken says that none comes any more.
	broken bool
	// more is closed with the next record, if somebody waits for it.
	more chan struct{}
	// ended is when the rule was cleared.
	ended time.Time
}

// recorded is a chosen packet with its time on the wall clock, in ns since 1970. It is taken
// once, so that all who read the record find the same.
type recorded struct {
	chosen
	wall int64
}

func newRing(log *slog.Logger) (*ring, error) {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "netemd_ring", Type: ebpf.RingBuf, MaxEntries: ringSize})
	if err != nil {
		if errors.Is(features.HaveMapType(ebpf.RingBuf), ebpf.ErrNotSupported) {
			return nil, fmt.Errorf("faults on chosen packets need Linux 5.12, with the BPF ring buffer: %w (%w)", errors.ErrUnsupported, err)
		}
		return nil, fmt.Errorf("create map netemd_ring: %w", err)
	}
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("read map netemd_ring: %w", err)
	}
	r := &ring{log: log, m: m, reader: reader, done: make(chan struct{}), logs: map[uint32]*ruleLog{}}
	go r.run()
	return r, nil
}

func (r *ring) run() {
	defer close(r.done)
	var rec ringbuf.Record
	for {
		if err := r.reader.ReadInto(&rec); err != nil {
			if !errors.Is(err, ringbuf.ErrClosed) {
				r.fail(err)
			}
			return
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

// fail says that from now on no chosen packet is recorded, to the log and in the logs.
func (r *ring) fail(err error) {
	r.log.Error("ebpf: the records of chosen packets cannot be read any more: from now on they are missing", "err", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.broken = true
	for _, l := range r.logs {
		l.mu.Lock()
		l.broken = true
		l.mu.Unlock()
	}
}

// open makes a log for the place of that number.
func (r *ring) open(id uint32) *ruleLog {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &ruleLog{id: id, broken: r.broken}
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
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	r := recorded{c, wallAt(int64(c.Time)).UnixNano()}
	if len(l.records) < content.MaxRecords {
		l.records = append(l.records, r)
		return
	}
	l.records[l.oldest] = r
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
	l.begun = p.begun.Load()
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
		if l.broken || l.came+l.missed >= l.chosen || time.Now().After(end) {
			break
		}
		l.mu.Unlock()
	}
	defer l.mu.Unlock()
	out := l.totals()
	out.Records = l.last(len(l.records))
	return out
}

// since returns what has come behind the cursor, without waiting, where that ends, and
// what is closed when more has come.
func (l *ruleLog) since(from content.Cursor) (out content.Log, next content.Cursor, more <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from.Log != uint64(l.id) {
		from = content.Cursor{Log: uint64(l.id)}
	}
	out = l.totals()
	fresh := l.came - from.Read
	out.Skipped = fresh - min(fresh, uint64(len(l.records)))
	out.Records = l.last(int(fresh - out.Skipped))
	from.Read = l.came
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return out, from, l.more
}

// totals are a log without records. The caller holds the lock.
func (l *ruleLog) totals() content.Log {
	out := content.Log{Chosen: max(l.chosen, l.came+l.missed), Missed: l.missed}
	if l.broken {
		out.Missed = out.Chosen - l.came
	}
	if l.begun > content.MaxConnections {
		out.Forgotten = l.begun - content.MaxConnections
	}
	return out
}

// last are the n newest records, oldest first. The caller holds the lock.
func (l *ruleLog) last(n int) []content.Record {
	if n == 0 {
		return nil
	}
	out := make([]content.Record, 0, n)
	for i := len(l.records) - n; i < len(l.records); i++ {
		out = append(out, l.records[(l.oldest+i)%len(l.records)].record())
	}
	return out
}

// record says it in the product's words.
func (c *recorded) record() content.Record {
	return content.Record{
		Time: int64(c.Time), Wall: time.Unix(0, c.wall),
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
