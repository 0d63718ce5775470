package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/match"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Bounds of a queue.
const (
	// maxQueued is how many bytes of buffers wait at most, whatever the limit in
	// packets.
	maxQueued = 256 << 20
	// lateLimit is how late a packet is still sent. What a stalled process finds
	// later than that is thrown away, and counted as late: by now it has been sent
	// again or given up.
	lateLimit = time.Second
	// drainLimit is how long Close waits for packets that are not due yet.
	drainLimit = 2 * time.Second
)

// queue holds the packets of one place, on a thread of its own.
type queue struct {
	log   *slog.Logger
	drops *drops
	place target.Place
	netns identity
	page  *page
	tap   *tap
	out   output
	event int // eventfd that wakes the thread

	model atomic.Pointer[model.Model]
	// stopAt is when the thread shall end at the latest, in ns; 0 is never. It ends
	// before when nothing waits.
	stopAt atomic.Int64
	// lost says that the namespace or the device went.
	lost atomic.Bool
	done chan struct{}
	// onLost is told once when the thread ends by itself.
	onLost func()
	// release gives everything back.
	release func() error

	frames, lossy, overflow, late, refused, delayed, duplicated, reordered, corrupted atomic.Uint64
	// held are the packets that wait now.
	held atomic.Uint64
	// tapDropped is the last look at the TAP's own counter.
	tapDropped atomic.Uint64
}

// output sends packets on, and drops none silently.
type output interface {
	// send sends up to batch packets in order until one is refused: how many were sent,
	// and the error of the next one. It does not block.
	send(packets []packet) (int, error)
	// fd is polled for POLLOUT after unix.EAGAIN.
	fd() int
	// gone reports that the device is no longer there.
	gone() bool
}

// divert readies the place's queue for n.
func (pl *place) divert(ctx context.Context, n qdisc.Netem) error {
	if pl.queue == nil {
		if err := pl.openQueue(ctx); err != nil {
			return err
		}
	}
	pl.queue.model.Store(model.New(n))
	// Trust the thread until it has been woken.
	pl.page.at.beat.Store(uint64(now()))
	return nil
}

func (pl *place) openQueue(ctx context.Context) error {
	q := &queue{
		log: pl.e.log, drops: pl.e.drops, place: pl.at, netns: pl.netns, page: pl.page.at, done: make(chan struct{}),
		onLost: func() { pl.e.lose(pl) },
	}
	q.model.Store(model.New(qdisc.Netem{}))
	var undo []func() error
	q.release = func() error {
		var errs []error
		for _, f := range slices.Backward(undo) {
			errs = append(errs, f())
		}
		undo = nil
		return errors.Join(errs...)
	}
	err := inside(ctx, pl.at.Namespace, func() error {
		link, err := device(pl.at.Index)
		if err != nil {
			return err
		}
		lo := link.Attrs().EncapType == "loopback"
		if lo && pl.at.Hook == target.Ingress {
			return fmt.Errorf("everything but loss on a loopback device's ingress; its egress sees every packet: %w", errors.ErrUnsupported)
		}
		if pl.header != 14 {
			return fmt.Errorf("everything but loss on a device without Ethernet headers: %w", errors.ErrUnsupported)
		}
		if q.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
			return fmt.Errorf("eventfd: %w", err)
		}
		undo = append(undo, func() error { return unix.Close(q.event) })
		if q.tap, err = newTAP(); err != nil {
			return err
		}
		undo = append(undo, q.tap.close)
		if pl.at.Hook == target.Ingress {
			return pl.returnThroughTAP(ctx, q, &undo)
		}
		return pl.sendThroughSocket(q, lo, &undo)
	})
	if err != nil {
		return errors.Join(err, q.release())
	}
	pl.page.at.tap.Store(uint32(q.tap.index))
	pl.queue = q
	pl.hook.queues.Store(true)
	go q.run()
	failpoint.At("ebpf.queue.started")
	return nil
}

// sendThroughSocket sends to the device, with sockets that the program knows; lo says
// that it is a loopback device.
func (pl *place) sendThroughSocket(q *queue, lo bool, undo *[]func() error) error {
	s, err := newSocket(pl.at.Index, pl.e.mark)
	if err != nil {
		return err
	}
	*undo = append(*undo, s.close)
	q.out = s
	cookies := []uint64{s.cookie}
	if lo {
		l, err := newLoopback(s)
		if err != nil {
			return err
		}
		*undo = append(*undo, l.close)
		q.out = l
		cookies = append(cookies, l.cookies()...)
	}
	pl.e.hub.at.queues.Add(1)
	*undo = append(*undo, func() error {
		pl.e.hub.at.queues.Add(^uint64(0))
		return nil
	})
	own := origin{pl.rank, pl.hook.id}
	for _, c := range cookies {
		if err := pl.e.sockets.Put(c, own); err != nil {
			return fmt.Errorf("make a socket known: %w", err)
		}
		*undo = append(*undo, func() error { return pl.e.sockets.Delete(c) })
	}
	failpoint.At("ebpf.queue.socket")
	return nil
}

// returnThroughTAP writes to the TAP, from where a program takes it to the device's
// ingress.
func (pl *place) returnThroughTAP(ctx context.Context, q *queue, undo *[]func() error) error {
	mark, err := pl.hook.takeMark(ctx)
	if err != nil {
		return err
	}
	*undo = append(*undo, func() error {
		pl.hook.giveMark(mark)
		return nil
	})
	key := returnKey(pl.hook.id) | uint64(mark)
	if err := pl.e.sockets.Put(key, origin{pl.rank, pl.hook.id}); err != nil {
		return fmt.Errorf("make a mark known: %w", err)
	}
	*undo = append(*undo, func() error { return pl.e.sockets.Delete(key) })
	prog, err := match.Load("netemd_return", returner(pl.at.Index, pl.e.mark|mark))
	if err != nil {
		return err
	}
	at, err := pl.e.attach.attach(pl.at.Namespace, q.tap.index, target.Ingress, prog)
	if err != nil {
		prog.Close()
		return err
	}
	*undo = append(*undo, at.detach)
	failpoint.At("ebpf.queue.return")
	q.out = &writer{tap: q.tap.fd, namespace: pl.at.Namespace, index: pl.at.Index}
	return nil
}

// wake has the thread look at what changed.
func (q *queue) wake() {
	var one = [8]byte{1}
	_, _ = unix.Write(q.event, one[:]) // full means that it is awake already
}

// alive is fs.ErrNotExist when the thread has found the device gone, and errTAP when what
// is diverted does not get to it.
func (q *queue) alive() error {
	if q.lost.Load() {
		return errQueueLost
	}
	return q.tap.takes()
}

// errQueueLost is of a queue whose thread has ended by itself.
var errQueueLost = fmt.Errorf("the device, its namespace, or netemd's own device of the queue: %w", fs.ErrNotExist)

// drain lets the thread end, at once when nothing waits. Nothing must be diverted
// any more.
func (q *queue) drain() {
	q.stopAt.Store(now() + int64(drainLimit))
	q.wake()
	<-q.done
}

// totals are the queue's counters. What the program calls seen and diverted are
// packets before they are cut; here each frame counts.
func (q *queue) totals() fault.Counters {
	if n, err := q.tap.dropped(); err == nil {
		q.tapDropped.Store(n)
	}
	full := q.tapDropped.Load()
	return fault.Counters{
		Seen: q.frames.Load() + full - q.page.diverted.Load(),
		Lost: q.lossy.Load(), Overflow: q.overflow.Load() + full,
		Late: q.late.Load(), Refused: q.refused.Load(),
		Delayed: q.delayed.Load(), Duplicated: q.duplicated.Load(),
		Reordered: q.reordered.Load(), Corrupted: q.corrupted.Load(),
	}
}
