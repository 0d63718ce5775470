package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/ringbuf"

	"netemd/internal/content"
	"netemd/internal/match"
)

const (
	// dropRingSize is in bytes: about 5,900 records.
	dropRingSize = 1 << 19
	// dropsKept bounds what one recorder holds between two drains: 20 MB at most.
	dropsKept = 100_000
)

// drops takes what the programs tell about the packets that they drop, while somebody
// wants to know.
type drops struct {
	hub *hub
	m   *ebpf.Map // nil: the kernel has no ring buffer

	// life guards the reader.
	life    sync.Mutex
	reader  *ringbuf.Reader
	done    chan struct{}
	flushed chan struct{}

	// wanted is what hub.telling is for the queues' threads, and untold counts what they could
	// not tell.
	wanted atomic.Bool
	untold atomic.Uint64

	mu        sync.Mutex
	recorders map[*DropRecorder]struct{}
	broken    error
}

// DropRecorder has the packets that an engine drops, from its making to its Close: those that
// loss and content rules drop in the kernel, and those that a queue loses, has no room for or
// has kept too long. It is not for concurrent use.
type DropRecorder struct {
	d       *drops
	since   uint64 // CLOCK_MONOTONIC
	untold  uint64
	records []content.Record
	lost    uint64
}

func newDrops(h *hub) *drops {
	d := &drops{hub: h, recorders: map[*DropRecorder]struct{}{}}
	// Without it, faults work all the same.
	d.m, _ = ebpf.NewMap(&ebpf.MapSpec{Name: "netemd_drops", Type: ebpf.RingBuf, MaxEntries: dropRingSize})
	return d
}

// RecordDrops begins to record the packets that the engine drops, of all its places. While
// it goes on, a sender that floods pays 2 to 3.5 us for each packet that is dropped, the
// waking of the reader included (BenchmarkRecordDrops, on a busy virtual machine); nothing
// otherwise. The error is errors.ErrUnsupported where the kernel has no ring buffer (before
// Linux 5.8).
func (e *Engine) RecordDrops() (*DropRecorder, error) {
	r, err := e.drops.open()
	if err != nil {
		return nil, fmt.Errorf("ebpf drops: %w", err)
	}
	return r, nil
}

func (d *drops) open() (*DropRecorder, error) {
	if d.m == nil {
		return nil, fmt.Errorf("the kernel has no BPF ring buffer: %w", errors.ErrUnsupported)
	}
	d.life.Lock()
	defer d.life.Unlock()
	if d.hub == nil {
		return nil, fs.ErrClosed
	}
	r := &DropRecorder{d: d, since: uint64(now()), untold: d.allUntold()}
	if d.reader == nil {
		reader, err := ringbuf.NewReader(d.m)
		if err != nil {
			return nil, fmt.Errorf("read map netemd_drops: %w", err)
		}
		d.reader, d.done, d.flushed = reader, make(chan struct{}), make(chan struct{})
		d.mu.Lock()
		d.broken = nil
		d.mu.Unlock()
		go d.run(reader, d.done, d.flushed)
	}
	d.mu.Lock()
	d.recorders[r] = struct{}{}
	d.mu.Unlock()
	d.hub.telling.Store(1)
	d.wanted.Store(true)
	return r, nil
}

// run empties the ring until its reader is closed.
func (d *drops) run(reader *ringbuf.Reader, done, flushed chan struct{}) {
	defer close(done)
	var rec ringbuf.Record
	for {
		switch err := reader.ReadInto(&rec); {
		case errors.Is(err, ringbuf.ErrFlushed):
			flushed <- struct{}{}
			continue
		case errors.Is(err, ringbuf.ErrClosed):
			return
		case err != nil:
			d.mu.Lock()
			d.broken = fmt.Errorf("read map netemd_drops: %w", err)
			d.mu.Unlock()
			return
		}
		if len(rec.RawSample) < int(unsafe.Sizeof(chosen{})) {
			continue
		}
		c := *(*chosen)(unsafe.Pointer(&rec.RawSample[0]))
		d.add(c.Time, (&recorded{c, wallAt(int64(c.Time)).UnixNano()}).record())
	}
}

// add gives a record to everybody who wants it.
func (d *drops) add(time uint64, told content.Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.recorders {
		switch {
		case time < r.since: // what another one had left in the ring
		case len(r.records) >= dropsKept:
			r.lost++
		default:
			r.records = append(r.records, told)
		}
	}
}

// allUntold is what could not be recorded so far; the caller has life.
func (d *drops) allUntold() uint64 { return d.hub.untold.Load() + d.untold.Load() }

// Drain returns the packets that were dropped since the recorder's making or the Drain
// before, in about the order of their times, and how many in all could not be recorded.
// All that was dropped before the call is there.
func (r *DropRecorder) Drain(context.Context) (records []content.Record, lost uint64, err error) {
	r.d.life.Lock()
	defer r.d.life.Unlock()
	if r.d.reader == nil {
		return nil, 0, fmt.Errorf("ebpf drops: %w", fs.ErrClosed)
	}
	if err := r.d.reader.Flush(); err != nil {
		return nil, 0, fmt.Errorf("ebpf drops: %w", err)
	}
	select {
	case <-r.d.flushed:
	case <-r.d.done:
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	records, r.records = r.records, nil
	return records, r.lost + r.d.allUntold() - r.untold, r.d.broken
}

// Close ends the recording.
func (r *DropRecorder) Close() error {
	d := r.d
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	_, mine := d.recorders[r]
	delete(d.recorders, r)
	last := mine && len(d.recorders) == 0
	d.mu.Unlock()
	if !last {
		return nil
	}
	return d.end()
}

// end ends the reading; the caller has life.
func (d *drops) end() error {
	if d.reader == nil {
		return nil
	}
	d.hub.telling.Store(0)
	d.wanted.Store(false)
	err := d.reader.Close()
	<-d.done
	d.reader = nil
	return err
}

// close ends everything, also under a recorder.
func (d *drops) close() error {
	d.life.Lock()
	defer d.life.Unlock()
	err := d.end()
	d.hub = nil
	if d.m != nil {
		err = errors.Join(err, d.m.Close())
	}
	return err
}

// tellDrop appends instructions that record the packet as dropped if somebody wants to
// know. Where read is false, it is read first. It uses R0 to R5 and R9.
func (c *classifier) tellDrop(s *match.Sequence, read bool) {
	if c.drops == nil {
		return
	}
	var h hub
	s.Add(
		asm.LoadMapValue(asm.R1, c.hub.FD(), 0),
		asm.LoadMem(asm.R1, asm.R1, int16(unsafe.Offsetof(h.telling)), asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "told"),
	)
	if !read {
		readPacket(s, c.header)
		s.Add(asm.FnKtimeGetNs.Call(), asm.StoreMem(asm.RFP, stackChosen, asm.R0, asm.DWord))
	}
	s.Add(
		asm.LoadMapPtr(asm.R1, c.drops.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(stackChosen)),
		asm.Mov.Imm(asm.R3, int32(unsafe.Sizeof(chosen{}))),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "told"),
		asm.LoadMapValue(asm.R2, c.hub.FD(), 0),
		asm.Mov.Imm(asm.R1, 1),
		asm.AddAtomic.Mem(asm.R2, asm.R1, asm.DWord, int16(unsafe.Offsetof(h.untold))),
	)
	s.At("told")
}
