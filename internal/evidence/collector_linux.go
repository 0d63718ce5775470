package evidence

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"

	"netemd/probe"
)

// maxCookies bounds the comparisons that the programs make in line.
const maxCookies = 64

// Config says what to collect.
type Config struct {
	// Cookies of the network namespaces (SO_NETNS_COOKIE), at most 64; none means
	// all of the machine.
	Cookies []uint64
	// Buffer is the ring's size in bytes, a power of two and a multiple of the page
	// size; default 1 MiB, about 14,000 records.
	Buffer int
}

// Collector traces retransmissions from Start to Stop. It holds one goroutine, and
// the kernel ends it with the process, whatever becomes of that.
type Collector struct {
	links  []link.Link
	progs  []*ebpf.Program
	ring   *ebpf.Map
	lost   *ebpf.Map
	reader *ringbuf.Reader
	shift  uint

	done     sync.WaitGroup
	stopping atomic.Bool
	// drained takes what the reader has each time that the ring was emptied.
	drained chan seen
	err     error
	// neighbours are those of the last drains that nobody has taken.
	neighbours []probe.NeighbourEvent
	// blind is why there are none.
	blind error
}

// seen is what was in the ring.
type seen struct {
	events     []probe.Retransmission
	neighbours []probe.NeighbourEvent
}

// Start begins to collect. When it returns, both tracepoints of retransmissions are watched, and
// those of neighbours where the kernel lets them (see Neighbours). The
// error says which step the kernel refused, in its own words.
func Start(cfg Config) (*Collector, error) {
	c, err := open(cfg)
	if err != nil {
		return nil, err
	}
	c.done.Go(c.read)
	return c, nil
}

// open is Start without reading.
func open(cfg Config) (_ *Collector, err error) {
	if len(cfg.Cookies) > maxCookies {
		return nil, fmt.Errorf("evidence: %d namespaces, want at most %d", len(cfg.Cookies), maxCookies)
	}
	if cfg.Buffer == 0 {
		cfg.Buffer = 1 << 20
	}
	l, err := kernelLayout()
	if err != nil {
		return nil, err
	}
	c := &Collector{shift: l.caShift, drained: make(chan seen)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	if c.ring, err = ebpf.NewMap(&ebpf.MapSpec{Name: "netem_rtx", Type: ebpf.RingBuf, MaxEntries: uint32(cfg.Buffer)}); err != nil {
		return nil, fmt.Errorf("ring buffer of %d bytes: %w", cfg.Buffer, err)
	}
	if c.lost, err = ebpf.NewMap(&ebpf.MapSpec{Name: "netem_rtx_lost", Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}); err != nil {
		return nil, fmt.Errorf("map of lost records: %w", err)
	}
	for _, t := range []struct {
		name      string
		kind, arg int
	}{
		{"tcp_retransmit_skb", kindSegment, 0},   // the socket
		{"tcp_retransmit_synack", kindSYNACK, 1}, // the listener, then the request
	} {
		if err := c.attach(t.name, program(t.kind, t.arg, l, cfg.Cookies, c.ring, c.lost)); err != nil {
			return nil, err
		}
	}
	c.blind = c.watchNeighbours(l, cfg.Cookies)
	if c.reader, err = ringbuf.NewReader(c.ring); err != nil {
		return nil, fmt.Errorf("ring buffer: %w", err)
	}
	return c, nil
}

// attach loads a program and lets it run at a tracepoint until the collector's end.
func (c *Collector) attach(name string, ins asm.Instructions) error {
	p, err := load(name, ins)
	if err != nil {
		return err
	}
	c.progs = append(c.progs, p)
	k, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return fmt.Errorf("tp_btf attach: %s: %w", name, err)
	}
	c.links = append(c.links, k)
	return nil
}

// read empties the ring until Stop flushes it.
func (c *Collector) read() {
	defer close(c.drained)
	var rec ringbuf.Record
	var s seen
	for {
		err := c.reader.ReadInto(&rec)
		if errors.Is(err, ringbuf.ErrFlushed) {
			last := c.stopping.Load()
			c.drained <- s
			if s = (seen{}); last {
				return
			}
			continue
		}
		if err != nil {
			c.err = fmt.Errorf("ring buffer: %w", err)
			return
		}
		if len(rec.RawSample) > recKind && rec.RawSample[recKind] == kindNeighbour {
			n, err := decodeNeighbour(rec.RawSample)
			if err == nil { // another family's table is none of ours
				s.neighbours = append(s.neighbours, n)
			}
			continue
		}
		e, err := decode(rec.RawSample, c.shift)
		if err != nil {
			c.err = err
			continue
		}
		s.events = append(s.events, e)
	}
}

// Drain returns what was retransmitted since Start or the Drain before, in the order of
// the ring. All that the kernel had reported when it was called is there. It is not for
// concurrent use.
//
// Server is set for SYN-ACKs only; who knows a connection's ends sets the others
// (probe.Attributor).
func (c *Collector) Drain() ([]probe.Retransmission, error) {
	if err := c.reader.Flush(); err != nil {
		return nil, fmt.Errorf("ring buffer: %w", err)
	}
	s, ok := <-c.drained
	if !ok {
		return nil, c.err
	}
	c.neighbours = append(c.neighbours, s.neighbours...)
	return s.events, nil
}

// Neighbours returns what happened in the neighbour tables (ARP, NDP) until the last Drain,
// or Stop, and was not returned before; an error where they are not watched, which says
// why.
func (c *Collector) Neighbours() ([]probe.NeighbourEvent, error) {
	n := c.neighbours
	c.neighbours = nil
	return n, c.blind
}

// Lost counts the records that have found the ring full.
func (c *Collector) Lost() (uint64, error) {
	var lost uint64
	if err := c.lost.Lookup(uint32(0), &lost); err != nil {
		return 0, fmt.Errorf("map of lost records: %w", err)
	}
	return lost, nil
}

// Stop ends the collection and returns what was retransmitted since Start or the last
// Drain, and how many records of the whole collection found the ring full. What was
// collected is returned with an error too. A second Stop is not allowed.
func (c *Collector) Stop() (events []probe.Retransmission, lost uint64, err error) {
	for _, k := range c.links {
		err = errors.Join(err, k.Close())
	}
	c.links = nil
	c.stopping.Store(true)
	events, e := c.Drain()
	err = errors.Join(err, e)
	lost, e = c.Lost()
	err = errors.Join(err, e)
	err = errors.Join(err, c.close())
	c.done.Wait() // a reader that could not be woken ends with the ring
	return events, lost, errors.Join(err, c.err)
}

// close gives back what there is.
func (c *Collector) close() error {
	var errs []error
	for _, k := range c.links {
		errs = append(errs, k.Close())
	}
	if c.reader != nil {
		errs = append(errs, c.reader.Close())
	}
	for _, p := range c.progs {
		errs = append(errs, p.Close())
	}
	errs = append(errs, c.ring.Close(), c.lost.Close()) // a nil map closes well
	return errors.Join(errs...)
}
