package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// maxSockets bounds the places that have a queue, and maxParting those that are taken away
// at a time: each is a thread that waits for the kernel.
const (
	maxSockets = 4096
	maxParting = 16
)

// Config is what an engine needs.
type Config struct {
	// Log is told what went wrong in the background; nil means nobody.
	Log *slog.Logger
	// Clsact uses clsact and cls_bpf even where the kernel has tcx.
	Clsact bool
}

// Engine carries out packet faults. Its methods are idempotent and safe for
// concurrent use.
type Engine struct {
	log     *slog.Logger
	hub     *shared[hub]
	sockets *ebpf.Map // socket cookie, or returnKey -> rank, group
	heart   *heart
	drops   *drops
	attach  attacher
	// mark tells packets of this engine's queues from those of another agent's.
	mark uint32

	// mu guards what follows, not the places themselves.
	mu     sync.Mutex
	closed bool
	places map[string]*place
	// reasons say why places were forgotten, until they are set or cleared.
	reasons map[string]string
	hooks   map[hookKey]*hook
	last    uint32 // the last hook's number
	ring    *ring  // nil until a content rule needs it
	rules   uint32 // the last content rule's number
	logs    map[string]*ruleLog

	// closing ends what the background waits for.
	closing    chan struct{}
	background sync.WaitGroup
	// parting has room for those that take a place away at the same time.
	parting chan struct{}
}

// New makes an engine. It needs CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON, and starts
// the heartbeat.
func New(cfg Config) (*Engine, error) {
	e := &Engine{
		log:    cfg.Log,
		attach: attacher{legacy: cfg.Clsact, made: map[clsact]bool{}},
		places: map[string]*place{}, reasons: map[string]string{},
		hooks: map[hookKey]*hook{},
		logs:  map[string]*ruleLog{},

		closing: make(chan struct{}),
		parting: make(chan struct{}, maxParting),
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	e.attach.log = e.log
	var err error
	if e.hub, err = newShared[hub]("netemd_hub"); err != nil {
		return nil, fmt.Errorf("ebpf engine: %w", err)
	}
	e.sockets, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "netemd_sockets", Type: ebpf.Hash, KeySize: 8, ValueSize: 8, MaxEntries: maxSockets,
	})
	if err != nil {
		e.hub.Close()
		return nil, fmt.Errorf("ebpf engine: create map netemd_sockets: %w", err)
	}
	info, err := e.hub.Info()
	if err != nil {
		e.sockets.Close()
		e.hub.Close()
		return nil, fmt.Errorf("ebpf engine: %w", err)
	}
	// The kernel numbers maps one after another, so two agents differ.
	if id, ok := info.ID(); ok {
		e.mark = markOwn | uint32(id)&0xff<<8
	}
	e.heart = newHeart(&e.hub.at.beat)
	e.drops = newDrops(e.hub.at)
	return e, nil
}

// Set makes n the whole impairment at p until deadline, by itself even if this
// process has died; the zero deadline is none. The first Set at a place arms it
// (about 10 ms), further ones write memory. Setting what is in force already only
// moves the deadline. A seed of 0 draws one, which Read shows. On an error the
// impairment from before stays in force; the error is fs.ErrNotExist when the place
// is gone, and errors.ErrUnsupported, with its name, for what this engine cannot do
// there.
func (e *Engine) Set(ctx context.Context, p target.Place, n qdisc.Netem, deadline time.Time) error {
	err := e.set(ctx, p, n, deadline)
	if err != nil {
		return fmt.Errorf("ebpf set: %s: %w", p, err)
	}
	return nil
}

func (e *Engine) set(ctx context.Context, p target.Place, n qdisc.Netem, deadline time.Time) error {
	until, err := monotonic(deadline)
	if err != nil {
		return err
	}
	for range 2 {
		pl, err := e.place(p)
		if err != nil {
			return err
		}
		err = pl.set(ctx, n, until)
		again := errors.Is(err, errDisarmed)
		if again || pl.disarmed() {
			e.forget(pl)
		}
		if !again {
			return err
		}
		// Somebody took the device or the program away: arm anew, once.
	}
	return fmt.Errorf("taken off again and again: %w", fs.ErrNotExist)
}

// Read returns what the kernel's program goes by at p, and its counters. The error
// is fs.ErrNotExist when the device or its namespace is gone.
func (e *Engine) Read(ctx context.Context, p target.Place) (fault.Status, error) {
	st, err := e.read(ctx, p)
	if err != nil {
		return fault.Status{}, fmt.Errorf("ebpf read: %s: %w", p, err)
	}
	return st, nil
}

func (e *Engine) read(ctx context.Context, p target.Place) (fault.Status, error) {
	e.mu.Lock()
	pl := e.places[p.Key()]
	e.mu.Unlock()
	if pl != nil {
		st, err := pl.read()
		if !errors.Is(err, errDisarmed) {
			return st, err
		}
		e.forgetFor(pl, err)
	}
	return e.reason(p.Key()), there(ctx, p)
}

// forgetFor forgets a place that is no longer armed, and remembers why.
func (e *Engine) forgetFor(pl *place, why error) {
	e.mu.Lock()
	if e.places[pl.key] == pl {
		e.reasons[pl.key] = strings.TrimPrefix(why.Error(), errDisarmed.Error()+": ")
	}
	e.mu.Unlock()
	e.forget(pl)
}

// reason is the status of a place that is not armed.
func (e *Engine) reason(key string) fault.Status {
	e.mu.Lock()
	defer e.mu.Unlock()
	return fault.Status{Reason: e.reasons[key]}
}

// Clear takes the impairment at p away. No packet is lost by it: those in the queue
// leave when they are due, and new ones may overtake them. Clearing what is not
// there, or is gone, is no error. A device of ours stays armed for the next fault; from
// one of others everything is taken away, when the queue is empty or drainLimit over. What
// goes with this process, whatever becomes of it, goes in the background: for what is
// written to the page no packet is impaired any more.
func (e *Engine) Clear(_ context.Context, p target.Place) error {
	e.mu.Lock()
	pl := e.places[p.Key()]
	delete(e.reasons, p.Key())
	e.mu.Unlock()
	if pl == nil {
		return nil
	}
	armed := pl.clear()
	if !p.Owned && (!armed || pl.lasts() || !e.part(pl)) {
		e.forget(pl)
	}
	return nil
}

// part takes a place off the books, and what it has away in the background. It is false when
// it is off the books already, or the engine closes.
func (e *Engine) part(pl *place) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.places[pl.key] != pl {
		return false
	}
	delete(e.places, pl.key)
	e.background.Go(func() {
		e.parting <- struct{}{}
		defer func() { <-e.parting }()
		err := pl.disarm()
		e.mu.Lock()
		e.unhook(pl)
		e.mu.Unlock()
		if err != nil {
			e.log.Warn("ebpf: take a place off", "place", pl.at.String(), "err", err)
		}
	})
	return true
}

// Close clears everything, lets the queues run empty for up to drainLimit, and takes
// all programs and devices of ours away.
func (e *Engine) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	all := e.places
	e.places = nil
	e.mu.Unlock()

	close(e.closing)
	for _, pl := range all {
		pl.clear()
	}
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	// Detaching waits for the kernel, so do it side by side, within reason.
	limit := make(chan struct{}, maxParting)
	for _, pl := range all {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			if err := pl.disarm(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("ebpf close: %s: %w", pl.at, err))
			}
		})
	}
	wg.Wait()
	e.background.Wait()
	if e.ring != nil {
		errs = append(errs, e.ring.close())
	}
	errs = append(errs, e.drops.close())
	e.heart.close()
	e.sockets.Close()
	e.hub.Close()
	return errors.Join(errs...)
}

// place returns the place at p, not yet armed if it is new.
func (e *Engine) place(p target.Place) (*place, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if pl := e.places[p.Key()]; pl != nil {
		return pl, nil
	}
	return e.newPlace(p.Key(), p)
}

// newPlace puts a place on the books; the caller has the engine's lock.
func (e *Engine) newPlace(key string, p target.Place) (*place, error) {
	if p.Hook != target.Egress && p.Hook != target.Ingress {
		return nil, fmt.Errorf("hook %q: want egress or ingress", p.Hook)
	}
	if p.Index <= 0 {
		return nil, fmt.Errorf("device %q has no index: %w", p.Device, fs.ErrNotExist)
	}
	if e.closed {
		return nil, fs.ErrClosed
	}
	at := hookKey{p.Namespace, p.Index, p.Hook}
	h := e.hooks[at]
	if h == nil {
		e.last++
		h = &hook{id: e.last}
		e.hooks[at] = h
	}
	h.places++
	delete(e.reasons, key)
	pl := &place{e: e, at: p, key: key, hook: h}
	e.places[key] = pl
	return pl, nil
}

// forget takes a place off the books after its device went, or its program did, or
// arming it did not succeed.
func (e *Engine) forget(pl *place) {
	e.mu.Lock()
	listed := e.places[pl.key] == pl
	if listed {
		delete(e.places, pl.key)
	}
	e.mu.Unlock()
	if err := pl.disarm(); err != nil {
		e.log.Warn("ebpf: take a lost place off", "place", pl.at.String(), "err", err)
	}
	// Until now another place at the hook has to come before this one.
	if listed {
		e.mu.Lock()
		e.unhook(pl)
		e.mu.Unlock()
	}
}

// unhook takes a place off its hook, once; the caller has the engine's lock.
func (e *Engine) unhook(pl *place) {
	if pl.hook.places--; pl.hook.places == 0 {
		delete(e.hooks, hookKey{pl.at.Namespace, pl.at.Index, pl.at.Hook})
	}
}

// lose has a place forgotten whose queue found its device gone.
func (e *Engine) lose(pl *place) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed { // otherwise Close sees to it
		e.background.Go(func() { e.forgetFor(pl, errQueueLost) })
	}
}

// monotonic turns a deadline into CLOCK_MONOTONIC, in ns.
func monotonic(deadline time.Time) (uint64, error) {
	if deadline.IsZero() {
		return 1<<63 - 1, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return 0, fmt.Errorf("deadline %s: %w", deadline.Format(time.RFC3339), context.DeadlineExceeded)
	}
	return uint64(now()) + uint64(left), nil
}
