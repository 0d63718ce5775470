package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/content"
	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// errOver says that the place's rule has ended by its deadline.
var errOver = errors.New("over")

func contentKey(p target.Place, r content.Rule) string { return p.Key() + "|" + r.Key() }

// SetContent puts r into force at p until deadline, by itself even if this process has
// died; the zero deadline is none. The rule stands beside the impairment there and other
// rules: what was set last sees a packet first, and what it lets pass goes on to the
// one before. Each call for a new rule takes about 10 ms. Setting what is in force
// already only moves the deadline. On an error nothing of the rule is in force; it is a
// *qdisc.FieldError for a bad rule, fs.ErrNotExist when the place is gone, and
// errors.ErrUnsupported, with its name, for what cannot be done there: holding packets of
// IPv4 at a loopback device's ingress, and kernels before 5.12, which lack what counts
// packets of several processors exactly (BPF_FETCH). It is fault.ErrBusy when too many
// rules follow connections already.
func (e *Engine) SetContent(ctx context.Context, p target.Place, r content.Rule, deadline time.Time) error {
	if err := e.setContent(ctx, p, r, deadline); err != nil {
		return fmt.Errorf("ebpf set: %s: %s: %w", p, r, err)
	}
	return nil
}

func (e *Engine) setContent(ctx context.Context, p target.Place, r content.Rule, deadline time.Time) error {
	if err := r.Validate(); err != nil {
		return err
	}
	until, err := monotonic(deadline)
	if err != nil {
		return err
	}
	for range 3 {
		pl, err := e.rulePlace(p, r)
		if err != nil {
			return err
		}
		err = pl.setRule(ctx, until)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errOver):
			e.leave(pl)
			continue
		}
		e.forget(pl)
		if !errors.Is(err, errDisarmed) {
			return err
		}
	}
	return fmt.Errorf("taken off again and again: %w", fs.ErrNotExist)
}

// ReadContent returns the counters of r at p, and whether it is in force. The error is
// fs.ErrNotExist when the device or its namespace is gone. Seen are the packets of the
// flow, Lost those that were dropped and Delayed those that were held; a packet that
// passed although it was chosen, since the engine's heartbeat was late, is Opened.
func (e *Engine) ReadContent(ctx context.Context, p target.Place, r content.Rule) (fault.Status, bool, error) {
	e.mu.Lock()
	pl := e.places[contentKey(p, r)]
	e.mu.Unlock()
	if pl != nil {
		st, inForce, err := pl.readRule()
		if err == nil {
			return st, inForce, nil
		}
		if !errors.Is(err, errDisarmed) {
			return fault.Status{}, false, fmt.Errorf("ebpf read: %s: %s: %w", p, r, err)
		}
		e.forgetFor(pl, err)
	}
	err := there(ctx, p)
	if err != nil {
		err = fmt.Errorf("ebpf read: %s: %s: %w", p, r, err)
	}
	return e.reason(contentKey(p, r)), false, err
}

// ContentLog returns the packets that r chose at p, also for 10 minutes after it was
// cleared, unless more than 16 others were since. The error is fs.ErrNotExist when there
// is nothing to tell.
func (e *Engine) ContentLog(_ context.Context, p target.Place, r content.Rule) (content.Log, error) {
	l, err := e.ruleLog(p, r)
	if err != nil {
		return content.Log{}, err
	}
	return l.read(), nil
}

// ContentSince returns what ContentLog would, of the records only those behind the cursor
// and without waiting for any, where that ends, and what is closed when more has come.
func (e *Engine) ContentSince(
	_ context.Context, p target.Place, r content.Rule, from content.Cursor,
) (log content.Log, next content.Cursor, more <-chan struct{}, err error) {
	l, err := e.ruleLog(p, r)
	if err != nil {
		return content.Log{}, from, nil, err
	}
	log, next, more = l.since(from)
	return log, next, more, nil
}

// ruleLog is the log of r at p, with its counters as they are now.
func (e *Engine) ruleLog(p target.Place, r content.Rule) (*ruleLog, error) {
	key := contentKey(p, r)
	e.mu.Lock()
	l, pl := e.logs[key], e.places[key]
	e.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("ebpf log: %s: %s: %w", p, r, fs.ErrNotExist)
	}
	if pl != nil {
		pl.countRule()
	}
	return l, nil
}

// ClearContent takes r away from p. Held packets leave when they are due, and everything
// of the rule's goes with the last of them. Clearing what is not there, or is gone, is no
// error.
func (e *Engine) ClearContent(_ context.Context, p target.Place, r content.Rule) error {
	e.mu.Lock()
	pl := e.places[contentKey(p, r)]
	delete(e.reasons, contentKey(p, r))
	e.mu.Unlock()
	if pl != nil {
		e.leave(pl)
	}
	return nil
}

// rulePlace returns the place of r at p, not yet armed if it is new.
func (e *Engine) rulePlace(p target.Place, r content.Rule) (*place, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := contentKey(p, r)
	if pl := e.places[key]; pl != nil {
		return pl, nil
	}
	if e.closed {
		return nil, fs.ErrClosed
	}
	if e.ring == nil {
		ring, err := newRing(e.log)
		if err != nil {
			return nil, err
		}
		e.ring = ring
		failpoint.At("ebpf.rule.ring")
	}
	pl, err := e.newPlace(key, p)
	if err != nil {
		return nil, err
	}
	e.rules++
	if old := e.logs[key]; old != nil {
		e.ring.drop(old)
	}
	pl.rule = &placeRule{Rule: r, id: e.rules, ring: e.ring, log: e.ring.open(e.rules)}
	e.logs[key] = pl.rule.log
	e.prune()
	return pl, nil
}

// prune forgets logs of rules that are over.
func (e *Engine) prune() {
	for {
		oldest, over := "", 0
		var at time.Time
		for key, l := range e.logs {
			ended := l.endedAt()
			if ended.IsZero() {
				continue
			}
			over++
			if oldest == "" || ended.Before(at) {
				oldest, at = key, ended
			}
		}
		if over <= logsKept && (oldest == "" || time.Since(at) < logKept) {
			return
		}
		e.ring.drop(e.logs[oldest])
		delete(e.logs, oldest)
	}
}

// leave ends a rule's place: at once, or in the background when it holds packets. What it
// chose is counted to the last packet in both cases.
func (e *Engine) leave(pl *place) {
	pl.clear()
	awaitPrograms()
	pl.countRule()
	holds := pl.holds()
	e.mu.Lock()
	if e.closed || e.places[pl.key] != pl {
		e.mu.Unlock()
		return
	}
	delete(e.places, pl.key)
	e.prune()
	finish := func() {
		err := pl.disarm()
		e.mu.Lock()
		e.unhook(pl)
		e.mu.Unlock()
		if err != nil {
			e.log.Warn("ebpf: take a rule off", "place", pl.at.String(), "rule", pl.rule.String(), "err", err)
		}
	}
	if holds {
		e.background.Go(func() {
			e.awaitDue(pl)
			finish()
		})
		e.mu.Unlock()
		return
	}
	e.mu.Unlock()
	finish()
}

// awaitPrograms waits until no processor is in a program that has not seen what was
// written before: the kernel's grace period, which is what MEMBARRIER_CMD_GLOBAL waits
// for (kernel/sched/membarrier.c), some 10 ms. It is refused where processors run without
// a tick; then a time is waited in which a program has ended, unless the machine stood.
func awaitPrograms() {
	const global = 1
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(10 * time.Millisecond)
	}
}

// countRule takes over the counters of the place's program, if it has one still.
func (pl *place) countRule() {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.armed {
		pl.rule.log.count(pl.page.at)
	}
}

// awaitDue waits until the last held packet is due, or the engine closes.
func (e *Engine) awaitDue(pl *place) {
	due := time.NewTimer(pl.rule.Hold + lateLimit)
	defer due.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	// A frame on its way from the TAP to the queue is seen nowhere for a moment.
	for quiet := 0; quiet < 2; quiet++ {
		if pl.holds() {
			quiet = 0
		}
		select {
		case <-due.C:
			return
		case <-e.closing:
			return
		case <-look.C:
		}
	}
}

// placeRule makes a place that of a rule.
type placeRule struct {
	content.Rule
	id   uint32
	ring *ring
	log  *ruleLog
	// conns are the connections, nil if the rule needs none.
	conns *conns
	// started is set with the first slot: what has ended is not begun anew.
	started bool
}

func (pl *place) setRule(ctx context.Context, until uint64) error {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if err := pl.ready(ctx); err != nil {
		return err
	}
	r := pl.rule
	cur := pl.current()
	switch {
	case cur != nil:
		cur.deadline.Store(until)
		return nil
	case r.started:
		return errOver
	}
	mode := uint32(modeDrop)
	if r.Hold > 0 {
		mode = modeDivert
		if err := pl.divert(ctx, qdisc.Netem{Delay: r.Hold}.Normalize()); err != nil {
			return fmt.Errorf("hold: %w", err)
		}
	}
	s := &pl.page.at.slots[0]
	s.mode.Store(mode)
	s.deadline.Store(until)
	pl.page.at.active.Store(1)
	r.started = true
	failpoint.At("ebpf.rule.set")
	if pl.queue != nil {
		pl.queue.wake()
	}
	return nil
}

func (pl *place) readRule() (fault.Status, bool, error) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if pl.dead || !pl.armed {
		return fault.Status{}, false, errDisarmed
	}
	if err := pl.check(); err != nil {
		return fault.Status{}, false, err
	}
	pl.lead()
	st := fault.Status{Counters: pl.totals()}
	if pl.queue != nil {
		st.Queued = pl.queue.held.Load()
	}
	return st, pl.current() != nil, nil
}

// holds reports whether packets wait in the place's queue, or are about to.
func (pl *place) holds() bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if !pl.armed || pl.queue == nil || pl.queue.lost.Load() {
		return false
	}
	q := pl.queue
	q.totals() // looks at the TAP
	return q.held.Load() > 0 || q.frames.Load()+q.tapDropped.Load() < pl.page.at.diverted.Load()
}

// openRule has a classifier choose packets, if the place has a rule.
func (pl *place) openRule(c *classifier) error {
	r := pl.rule
	if r == nil {
		return nil
	}
	c.rule, c.id, c.ring = &r.Rule, r.id, r.ring.m
	if tracks(r.Rule) {
		if err := r.ring.follow(); err != nil {
			return err
		}
		var err error
		if r.conns, err = newConns(); err != nil {
			r.ring.unfollow()
			return err
		}
		c.conns = r.conns
		failpoint.At("ebpf.rule.connections")
	}
	return nil
}

// closeRule ends the rule's log with the counters of its page, if there was one.
func (pl *place) closeRule(p *page) {
	r := pl.rule
	if r == nil {
		return
	}
	if p != nil {
		r.log.count(p)
	}
	r.log.end()
	if r.conns != nil {
		_ = r.conns.close() // only memory goes with it
		r.conns = nil
		r.ring.unfollow()
	}
}
