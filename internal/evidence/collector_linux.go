package evidence

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf"
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

	done   sync.WaitGroup
	events []probe.Retransmission
	err    error
}

// Start begins to collect. When it returns, both tracepoints are watched. The
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
	c := &Collector{shift: l.caShift}
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
		p, err := load(t.name, program(t.kind, t.arg, l, cfg.Cookies, c.ring, c.lost))
		if err != nil {
			return nil, err
		}
		c.progs = append(c.progs, p)
		k, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, fmt.Errorf("tp_btf attach: %s: %w", t.name, err)
		}
		c.links = append(c.links, k)
	}
	if c.reader, err = ringbuf.NewReader(c.ring); err != nil {
		return nil, fmt.Errorf("ring buffer: %w", err)
	}
	return c, nil
}

// read drains the ring until Stop flushes it.
func (c *Collector) read() {
	var rec ringbuf.Record
	for {
		if err := c.reader.ReadInto(&rec); err != nil {
			if !errors.Is(err, ringbuf.ErrFlushed) {
				c.err = fmt.Errorf("ring buffer: %w", err)
			}
			return
		}
		e, err := decode(rec.RawSample, c.shift)
		if err != nil {
			c.err = err
			continue
		}
		c.events = append(c.events, e)
	}
}

// Stop ends the collection and returns everything that was retransmitted since
// Start, in the order of the ring, and how many records found the ring full. What
// was collected is returned with an error too. A second Stop is not allowed.
//
// Server is set for SYN-ACKs only; who knows a connection's ends sets the others
// (probe.Attribute).
func (c *Collector) Stop() (events []probe.Retransmission, lost uint64, err error) {
	for _, k := range c.links {
		err = errors.Join(err, k.Close())
	}
	c.links = nil
	err = errors.Join(err, c.reader.Flush())
	c.done.Wait()
	if e := c.lost.Lookup(uint32(0), &lost); e != nil {
		err = errors.Join(err, fmt.Errorf("map of lost records: %w", e))
	}
	return c.events, lost, errors.Join(err, c.err, c.close())
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
