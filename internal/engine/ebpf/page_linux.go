package ebpf

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
)

// staleAfter is the age of a heartbeat from which on a program passes everything.
const staleAfter = 50_000_000 // ns

// What a program does with the packets that it selects.
const (
	modeDrop   = 1
	modeDivert = 2
)

// slots is how many configurations a page holds. A writer fills the next one and
// then switches, so a program never sees half a configuration unless it sleeps
// through three further writes.
const slots = 4

// arrivals is for how many diverted packets a page holds the time; a power of two. What
// has come on top when the queue's thread wakes up is a burst, whose packets are as good as
// simultaneous.
const arrivals = 256

// slot is one whole configuration, and the random state that goes with it.
type slot struct {
	mode atomic.Uint32
	// loss and rho are probability and correlation as netem scales them: 2^32-1 is
	// 100 %.
	loss, rho atomic.Uint32
	// kind is the kind of a model.Chain, chances and state are the rest of it.
	kind atomic.Uint32
	// deadline is CLOCK_MONOTONIC in ns.
	deadline atomic.Uint64
	seed     atomic.Uint64
	// drawn counts random numbers; the n-th is a hash of seed and n, so processors
	// share one reproducible stream without a lock.
	drawn atomic.Uint64
	// last is the previous correlated draw. Processors that draw at the same time
	// overwrite each other's; with a correlation the stream is reproducible only
	// while packets come one after the other.
	last    atomic.Uint64
	chances [5]atomic.Uint32
	// state moves as last does.
	state atomic.Uint32
	// ecn is 1 to mark packets where that can be instead of dropping them.
	ecn atomic.Uint32
	_   [128 - 72]byte
}

// setChain begins a chain.
func (s *slot) setChain(c model.Chain) {
	s.kind.Store(c.Kind)
	s.state.Store(c.State)
	for i, a := range c.A {
		s.chances[i].Store(a)
	}
}

func (s *slot) chain() model.Chain {
	c := model.Chain{Kind: s.kind.Load(), State: s.state.Load()}
	for i := range c.A {
		c.A[i] = s.chances[i].Load()
	}
	return c
}

// page is the memory that one place's program and this process share: the only
// value of an array map. Counters only grow.
type page struct {
	// active is 0 when nothing is in force, otherwise 1 + the index of the slot.
	active atomic.Uint32
	// tap is the device that diverted packets go to.
	tap atomic.Uint32
	// beat is when the place's queue last ran, CLOCK_MONOTONIC in ns.
	beat atomic.Uint64
	// generation is that of the program which judges; others at the hook let pass.
	generation atomic.Uint32
	_          [64 - 20]byte

	seen, lost, opened, diverted atomic.Uint64
	// ordinal, turns, missed and begun belong to a content rule: packets of the wire,
	// chosen packets up to its count, those that could not be recorded, and connections.
	ordinal, turns, missed, begun atomic.Uint64

	slots [slots]slot
	// arrived is when each of the last packets was diverted, CLOCK_MONOTONIC in ns; the
	// n-th since the beginning is at n modulo arrivals.
	arrived [arrivals]atomic.Uint64
}

// hub is the memory that all programs of an engine share.
type hub struct {
	// beat is when this process last said that it lives, CLOCK_MONOTONIC in ns.
	beat atomic.Uint64
	// queues counts the places with a queue. While it is 0, no packet can be our own.
	queues atomic.Uint64
	// telling is 1 while what is dropped is to be recorded, and untold counts what could
	// not be.
	telling, untold atomic.Uint64
}

// shared is a T in an mmapable array map with one value.
type shared[T any] struct {
	*ebpf.Map
	mem []byte
	at  *T
}

func newShared[T any](name string) (*shared[T], error) {
	var zero T
	size := unsafe.Sizeof(zero)
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: name, Type: ebpf.Array, KeySize: 4, ValueSize: uint32(size), MaxEntries: 1,
		Flags: unix.BPF_F_MMAPABLE,
	})
	if err != nil {
		return nil, fmt.Errorf("create map %s: %w", name, err)
	}
	pages := (int(size) + unix.Getpagesize() - 1) &^ (unix.Getpagesize() - 1)
	mem, err := unix.Mmap(m.FD(), 0, pages, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("mmap map %s: %w", name, err)
	}
	return &shared[T]{Map: m, mem: mem, at: (*T)(unsafe.Pointer(&mem[0]))}, nil
}

// Close unmaps the value; at must not be used any more.
func (s *shared[T]) Close() {
	s.at = nil
	_ = unix.Munmap(s.mem)
	s.Map.Close()
}
