package ebpf

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"

	"netemd/internal/engine/ebpf/model"
	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/match"
	"netemd/internal/target"
	"netemd/qdisc"
)

// errDisarmed says that the place is to be forgotten: its device, its namespace or
// its program is gone.
var errDisarmed = errors.New("no longer armed")

// place is one armed place.
type place struct {
	e    *Engine
	at   target.Place
	key  string
	hook *hook
	rule *placeRule // nil for impairments

	mu    sync.Mutex
	armed bool
	// dead places are never used again.
	dead   bool
	netns  identity
	rank   uint32
	header int
	page   *shared[page]
	prog   attachment
	// load makes the program once more, for lead. What it returns does nothing before
	// the function is called, and the one before it nothing afterwards.
	load  func() (*ebpf.Program, func(), error)
	queue *queue // nil until a Set needs it

	// turn counts the slots written.
	turn uint32
	// want is what was set last, with the seed in use.
	want qdisc.Netem
	// base is what the counters showed when the fault began.
	base fault.Counters
}

// disarmed reports whether the place is of no further use: it was never armed, or
// is no longer.
func (pl *place) disarmed() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return !pl.armed || pl.dead
}

// ready arms the place, or looks whether it still is. The caller holds pl.mu.
func (pl *place) ready(ctx context.Context) error {
	switch {
	case pl.dead:
		return errDisarmed
	case pl.armed:
		return pl.check()
	}
	err := pl.arm(ctx)
	if err != nil {
		pl.dead = true
	}
	return err
}

func (pl *place) set(ctx context.Context, n qdisc.Netem, until uint64) error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if err := pl.ready(ctx); err != nil {
		return err
	}

	page := pl.page.at
	cur := pl.current()
	n = n.Normalize()
	again := n
	if again.Seed == 0 {
		again.Seed = pl.want.Seed
	}
	if cur != nil && again == pl.want {
		cur.deadline.Store(until)
		return nil
	}
	if n.Seed == 0 {
		var b [8]byte
		_, _ = rand.Read(b[:]) // it never fails
		n.Seed = binary.NativeEndian.Uint64(b[:]) | 1
	}
	mode := uint32(modeDrop)
	if n.Queues() {
		mode = modeDivert
		if err := pl.divert(ctx, n); err != nil {
			return err
		}
	}
	if cur == nil {
		pl.base = pl.totals()
	}
	// The next slot was last written three writes ago.
	pl.turn++
	next := pl.turn % slots
	s := &page.slots[next]
	s.mode.Store(mode)
	s.loss.Store(n.Loss.Fraction())
	s.rho.Store(n.LossCorrelation.Fraction())
	s.setChain(model.NewChain(n))
	s.ecn.Store(0)
	if n.ECN {
		s.ecn.Store(1)
	}
	s.seed.Store(n.Seed)
	s.drawn.Store(0)
	s.last.Store(splitmix(^n.Seed) >> 32)
	s.deadline.Store(until)
	page.active.Store(next + 1)
	failpoint.At("ebpf.fault.set")
	pl.want = n
	if pl.queue != nil {
		pl.queue.wake()
	}
	return nil
}

// arm loads the program and attaches it, with nothing in force yet.
func (pl *place) arm(ctx context.Context) error {
	pl.hook.mu.Lock()
	defer pl.hook.mu.Unlock()
	err := meant(pl.at.Namespace, pl.at.Cookie)
	if err != nil {
		return err
	}
	if pl.netns, err = identify(pl.at.Namespace); err != nil {
		return err
	}
	page, err := newShared[page]("netemd_place")
	if err != nil {
		return err
	}
	failpoint.At("ebpf.place.page")
	err = inside(ctx, pl.at.Namespace, func() error {
		link, err := device(pl.at.Index)
		if err != nil {
			return err
		}
		if pl.header, err = linkHeader(link); err != nil {
			return err
		}
		pl.rank = pl.hook.next()
		c := classifier{
			hub: pl.e.hub.Map, page: page.Map, sockets: pl.e.sockets,
			match: pl.at.Match, hook: pl.at.Hook, header: pl.header, group: pl.hook.id, rank: pl.rank,
			mark: pl.e.mark, drops: pl.e.drops.m,
		}
		if err := pl.openRule(&c); err != nil {
			return err
		}
		pl.load = func() (*ebpf.Program, func(), error) {
			c.generation = page.at.generation.Load() + 1
			generation := c.generation
			ins, err := c.program()
			if err != nil {
				return nil, nil, err
			}
			prog, err := match.Load(programName(pl.at.Hook), ins)
			return prog, func() { page.at.generation.Store(generation) }, err
		}
		prog, takeOver, err := pl.load()
		if err != nil {
			return err
		}
		failpoint.At("ebpf.place.program")
		// Places that still go make room.
		for end := time.Now().Add(drainLimit); ; time.Sleep(20 * time.Millisecond) {
			pl.prog, err = pl.e.attach.attach(pl.at.Namespace, pl.at.Index, pl.at.Hook, prog)
			if !errors.Is(err, fault.ErrBusy) || context.Cause(ctx) != nil || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			prog.Close()
			return err
		}
		failpoint.At("ebpf.place.attached")
		takeOver()
		return nil
	})
	if err != nil {
		pl.closeRule(nil)
		page.Close()
		return err
	}
	pl.page, pl.armed = page, true
	failpoint.At("ebpf.place.armed")
	return nil
}

func programName(hook target.Hook) string {
	if hook == target.Ingress {
		return match.IngressProgram
	}
	return match.EgressProgram
}

// linkHeader is the length of the header before IP, by the device's type.
func linkHeader(link netlink.Link) (int, error) {
	switch kind := link.Attrs().EncapType; kind {
	case "ether", "loopback":
		return 14, nil
	case "none", "rawip", "ipip", "tunnel6", "sit", "gre", "gre6", "ip6gre":
		return 0, nil
	default:
		return 0, fmt.Errorf("%s is a device of type %s: %w", link.Attrs().Name, kind, errors.ErrUnsupported)
	}
}

// check reports errDisarmed when the program is no longer on the device, the namespace's
// name now stands for another one, or the TAP no longer takes packets. Without the place
// they pass: what somebody did to the TAP shall not be an outage.
func (pl *place) check() error {
	id, err := identify(pl.at.Namespace)
	if err == nil && id != pl.netns {
		err = fmt.Errorf("namespace %q was made anew: %w", pl.at.Namespace, fs.ErrNotExist)
	}
	if err == nil {
		err = pl.prog.attached()
	}
	if err == nil && pl.queue != nil {
		err = pl.queue.alive()
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errTAP) {
		return fmt.Errorf("%w: %w", errDisarmed, err)
	}
	return err
}

// current is the slot in force, nil when there is none or its deadline is past.
func (pl *place) current() *slot {
	page := pl.page.at
	active := page.active.Load()
	if active == 0 {
		return nil
	}
	s := &page.slots[(active-1)%slots]
	if uint64(now()) >= s.deadline.Load() {
		return nil
	}
	return s
}

func (pl *place) read() (fault.Status, error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.dead || !pl.armed {
		return fault.Status{}, errDisarmed
	}
	if err := pl.check(); err != nil {
		return fault.Status{}, err
	}
	pl.lead()
	st := fault.Status{Counters: sub(pl.totals(), pl.base)}
	if pl.queue != nil {
		st.Queued = pl.queue.held.Load()
	}
	s := pl.current()
	if s == nil {
		return st, nil
	}
	// What the program goes by is read from its own memory; what the queue goes by
	// never leaves this process.
	st.Netem = pl.want
	st.Netem.Loss = qdisc.PercentOf(s.loss.Load())
	st.Netem.LossCorrelation = qdisc.PercentOf(s.rho.Load())
	st.Netem.ECN = s.ecn.Load() != 0
	s.chain().Apply(&st.Netem)
	st.Netem.Seed = s.seed.Load()
	return st, nil
}

// clear lets all packets pass, and reports whether there was a program to tell so.
func (pl *place) clear() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if !pl.armed || pl.dead {
		return false
	}
	pl.page.at.active.Store(0)
	failpoint.At("ebpf.fault.open")
	return true
}

// lasts reports whether the place has something that outlives this process.
func (pl *place) lasts() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	_, goes := pl.prog.(*tcx)
	return !goes
}

// disarm takes everything of the place away, once. Nothing is in force by then.
func (pl *place) disarm() error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if !pl.armed {
		pl.dead = true
		return nil
	}
	pl.armed, pl.dead = false, true
	pl.page.at.active.Store(0)
	var errs []error
	if pl.queue != nil {
		grace() // what is being diverted gets to the TAP before its last reading
		pl.queue.drain()
		failpoint.At("ebpf.queue.drained")
		// The program stays behind the queue, whose last packets' marks it clears.
		errs = append(errs, pl.queue.release())
		failpoint.At("ebpf.queue.released")
	}
	errs = append(errs, pl.prog.detach())
	failpoint.At("ebpf.place.detached")
	pl.closeRule(pl.page.at)
	pl.page.Close()
	failpoint.At("ebpf.place.disarmed")
	return errors.Join(errs...)
}

// totals are the place's counters since it was armed.
func (pl *place) totals() fault.Counters {
	page := pl.page.at
	c := fault.Counters{Seen: page.seen.Load(), Lost: page.lost.Load(), Opened: page.opened.Load()}
	if pl.queue != nil {
		c = c.Add(pl.queue.totals())
	}
	return c
}

func sub(c, d fault.Counters) fault.Counters {
	return fault.Counters{
		Seen: c.Seen - d.Seen, Lost: c.Lost - d.Lost, Overflow: c.Overflow - d.Overflow,
		Late: c.Late - d.Late, Refused: c.Refused - d.Refused,
		Delayed: c.Delayed - d.Delayed, Duplicated: c.Duplicated - d.Duplicated,
		Reordered: c.Reordered - d.Reordered, Corrupted: c.Corrupted - d.Corrupted,
		Opened: c.Opened - d.Opened,
	}
}

// splitmix is the hash that the program draws with.
func splitmix(x uint64) uint64 {
	x = (x ^ x>>30) * mixA
	x = (x ^ x>>27) * mixB
	return x ^ x>>31
}
