package ebpf

import (
	"errors"
	"math"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
)

// lookEvery is how often an idle or busy queue looks whether its namespace and its
// device still stand.
const lookEvery = time.Second

// loop is what only the queue's thread touches.
type loop struct {
	*queue
	pool    pool
	waiting timeline
	// packets and bytes are of those that wait or are ready, and of their buffers.
	packets, bytes int
	order          uint64
	used           *model.Model // the one in force, as far as the thread has looked
	// next is when the first of them leaves: MinInt64 when the model is to be asked,
	// MaxInt64 when none waits.
	next int64
	// ready[:count] are due, and taken off waiting.
	ready   [batch]packet
	count   int
	blocked bool // the output said EAGAIN
	// spare is what the next frame is read into; rest takes what does not fit.
	spare, rest []byte
	iov         [2]unix.Iovec
	last        int64 // the last beat
	// taken is the number of the next frame among those diverted, came when the last one
	// was, and empty when the TAP last had none.
	taken       uint64
	came, empty int64
	looked      int64
	told        bool // a refused frame was logged
	spin        spin
}

// run reads, holds and sends packets until stopAt. It never blocks without a limit,
// and beats in every round, so a stalled thread opens the program.
func (q *queue) run() {
	// Never unlocked, so that the thread with its priority ends here.
	runtime.LockOSThread()
	prefer()
	l := &loop{queue: q, rest: make([]byte, maxFrame), looked: now(), empty: now()}
	for !q.lost.Load() {
		t := now()
		if l.last != 0 && t-l.last > staleAfter {
			l.recover(t)
		}
		l.last = t
		q.page.beat.Store(uint64(t))
		l.adopt(t)
		busy := l.read()
		l.flush(now())
		q.held.Store(uint64(l.packets))
		stop := q.stopAt.Load()
		if stop != 0 && !busy && (l.packets == 0 || now() >= stop) {
			break
		}
		if t-l.looked > int64(lookEvery) {
			l.look(t)
		}
		if !busy {
			l.sleep()
		}
	}
	// What is not due within the limit leaves now.
	for l.packets > 0 && !l.blocked {
		l.flush(math.MaxInt64)
	}
	q.late.Add(uint64(l.packets))
	q.held.Store(0)
	close(q.done)
	if q.lost.Load() {
		q.onLost()
	}
}

// recover handles what a stall has left. The program is open since, so there is no
// hurry to beat.
func (l *loop) recover(t int64) {
	stall := time.Duration(t - l.last)
	before := l.late.Load()
	if stall > lateLimit {
		// Nobody can say how long these have lain there.
		for range tapQueue {
			n, err := unix.Read(l.tap.fd, l.rest)
			if err != nil {
				break
			}
			l.taken++
			l.spoil(l.rest[:n])
		}
	}
	l.flush(t)
	l.log.Warn("ebpf: the queue's thread stood still", "place", l.place.String(), "stall", stall,
		"dropped", l.late.Load()-before, "waiting", l.packets)
}

// spoil counts a frame that is not sent, as the packets that the model would have seen.
func (l *loop) spoil(b []byte) {
	n := 1
	if m := l.model.Load(); len(b) >= vnetHeader && m.Frames() {
		if s, ok := superOf(b); ok {
			n = s.count
		}
	}
	l.frames.Add(uint64(n))
	l.late.Add(uint64(n))
}

// look finds out whether there is still something to do here.
func (l *loop) look(t int64) {
	l.looked = t
	id, err := identify(l.place.Namespace)
	if err != nil || id != l.netns || l.out.gone() {
		l.lost.Store(true)
	}
}

// read takes a batch of frames from the TAP, and reports whether there may be more.
func (l *loop) read() bool {
	for range batch {
		if l.spare == nil {
			l.spare = l.pool.get(smallFrame)
		}
		b := l.spare[:cap(l.spare)]
		l.iov[0].Base, l.iov[1].Base = &b[0], &l.rest[0]
		l.iov[0].SetLen(len(b))
		l.iov[1].SetLen(len(l.rest))
		// The descriptor does not block, so the scheduler need not know.
		r, _, errno := unix.RawSyscall(unix.SYS_READV, uintptr(l.tap.fd), uintptr(unsafe.Pointer(&l.iov)), 2)
		if errno != 0 {
			l.taken, l.empty = l.page.diverted.Load(), l.last
			if errno == unix.EBADFD || errno == unix.EIO {
				l.lost.Store(true) // somebody deleted the TAP
			}
			return errno == unix.EINTR
		}
		n := int(r)
		at := l.arrival()
		switch {
		case n < vnetHeader:
			continue
		case n > len(b):
			big := l.pool.get(n)
			copy(big, b)
			copy(big[len(b):], l.rest)
			l.pool.put(b)
			b = big
		case 4*n <= cap(b):
			small := l.pool.get(n)
			copy(small, b)
			l.pool.put(b)
			b = small
		}
		b = b[:n]
		l.spare = nil
		if n > smallFrame { // frames come in flocks of a size
			l.spare = l.pool.get(maxFrame)
		}
		t := now()
		if t-l.last > int64(lateLimit) { // a stall in this round, which recover has not seen
			l.spoil(b)
			l.pool.put(b)
			continue
		}
		l.frame(min(t, at), b)
	}
	return true
}

// arrival is when the frame just read was diverted: the wake-up of the thread is not to
// be added to its delay. The number of the frame is wrong by a few after the TAP was full,
// or by one that was on its way when the TAP was empty. Then the time found is one of another
// frame of the same flock, or is too old, and now stands in for it.
func (l *loop) arrival() int64 {
	at := int64(l.page.arrived[l.taken%arrivals].Load())
	l.taken++
	if at < l.empty {
		at = now()
	}
	l.came = max(l.came, at)
	return l.came
}

// adopt looks whether there is another model, which also lets go what waits.
func (l *loop) adopt(t int64) {
	if m := l.model.Load(); m != l.used {
		if l.used != nil {
			m.Follow(l.used, t)
		}
		l.used, l.next = m, math.MinInt64
	}
}

// frame asks the model about b and does what it says, for each segment of a
// super-packet if the model counts packets.
func (l *loop) frame(t int64, b []byte) {
	m := l.used
	markable := m.Marks() && carriesECN(b[vnetHeader:])
	if m.Frames() {
		if s, ok := superOf(b); ok {
			l.segments(t, &s, markable)
			return
		}
	}
	v := l.ask(t, len(b)-vnetHeader, l.packets, markable)
	if v.Count == 0 {
		l.tell(t, b, 0, segmentsOf(b))
		l.pool.put(b)
	}
	for i, c := range v.Copies[:v.Count] {
		f := b
		if i < v.Count-1 {
			f = l.pool.get(len(b))
			copy(f, b)
		}
		l.hold(t, f, c, 1)
	}
}

// segments asks the model about each segment of s. Neighbours that leave at the same
// time stay together, as they came.
func (l *loop) segments(t int64, s *super, markable bool) {
	var (
		together = l.used.Together()
		run      model.Copy
		first    int
		end      int // 0 as long as there is no run
	)
	for i := range s.count {
		v := l.ask(t, s.size(i, i+1), l.packets+end-first, markable)
		if v.Count == 0 {
			l.tell(t, s.frame, i, i+1)
		}
		for _, c := range v.Copies[:v.Count] {
			if end == i && end > 0 && together && c == run && c.Bit < 0 && !c.Mark {
				end++
				continue
			}
			l.hold(t, l.part(s, first, end), run, end-first)
			run, first, end = c, i, i+1
		}
	}
	if end-first == s.count && s.count > 1 {
		l.hold(t, s.frame, run, s.count)
		return
	}
	l.hold(t, l.part(s, first, end), run, end-first)
	l.pool.put(s.frame)
}

// part is a frame of some segments of s, nil without any.
func (l *loop) part(s *super, first, end int) []byte {
	if first == end {
		return nil
	}
	b := l.pool.get(vnetHeader + s.size(first, end))
	s.cut(b, first, end)
	return b
}

// ask counts what the model says about a packet of size bytes.
func (l *loop) ask(t int64, size, queued int, markable bool) model.Verdict {
	v := l.used.Packet(t, size, queued, markable)
	l.frames.Add(1)
	l.lossy.Add(uint64(v.Lost))
	l.overflow.Add(uint64(v.Overflow))
	l.duplicated.Add(uint64(v.Duplicated))
	l.reordered.Add(uint64(v.Reordered))
	l.delayed.Add(uint64(v.Delayed))
	return v
}

// hold has a frame that came at t, and stands for count packets, wait as c says.
func (l *loop) hold(t int64, f []byte, c model.Copy, count int) {
	if f == nil {
		return
	}
	if c.Mark {
		mark(f[vnetHeader:])
	}
	if c.Bit >= 0 && flip(f, c.Bit) {
		l.corrupted.Add(1)
	}
	if l.bytes+cap(f) > maxQueued {
		l.overflow.Add(uint64(count))
		l.tell(t, f, 0, count)
		l.pool.put(f)
		return
	}
	p := packet{due: c.Due, order: l.order, frame: f, count: count, delayed: c.Ahead || c.Due > t}
	if c.Ahead {
		p.due = math.MinInt64
	}
	l.order++
	l.packets += count
	l.bytes += cap(f)
	l.waiting.push(p)
	l.next = math.MinInt64
}

// leaves takes the next packet off those that wait if it leaves at t, and says in next
// when it does otherwise. The time without end takes all.
func (l *loop) leaves(t int64) (p packet, ok bool) {
	if t < l.next {
		return packet{}, false
	}
	if len(l.waiting) == 0 {
		l.next = math.MaxInt64
		return packet{}, false
	}
	due := l.waiting[0].due
	if due == math.MinInt64 || t == math.MaxInt64 {
		return l.waiting.pop(), true
	}
	if l.next = l.used.Opens(t, due); l.next > t {
		return packet{}, false
	}
	p = l.waiting.pop()
	if !p.delayed && l.next > due { // it is a slot that it has waited for
		l.delayed.Add(uint64(p.count))
	}
	p.due = l.next
	l.used.Left(t, len(p.frame)-vnetHeader)
	return p, true
}

// flush sends what is due at t, until the output holds it back.
func (l *loop) flush(t int64) {
	l.blocked = false
	for {
		for l.count < batch {
			p, ok := l.leaves(t)
			if !ok {
				break
			}
			if p.due != math.MinInt64 && t != math.MaxInt64 && t-p.due > int64(lateLimit) {
				l.tell(t, p.frame, 0, p.count)
				l.drop(p, &l.late)
				continue
			}
			l.ready[l.count] = p
			l.count++
		}
		if l.count == 0 {
			return
		}
		n, err := l.out.send(l.ready[:l.count])
		for i := range l.ready[:n] {
			l.gone(l.ready[i])
		}
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			// The device's own queue was full, or it is down, or the frame is longer
			// than its MTU.
			why := &l.refused
			if errors.Is(err, unix.ENOBUFS) {
				why = &l.overflow
			} else if !l.told {
				l.told = true
				l.log.Warn("ebpf: the device refused a packet", "place", l.place.String(), "bytes", len(l.ready[n].frame), "err", err)
			}
			l.drop(l.ready[n], why)
			n++
		}
		l.count = copy(l.ready[:], l.ready[n:l.count])
		clear(l.ready[l.count:])
		if errors.Is(err, unix.EAGAIN) {
			l.blocked = true
			return
		}
	}
}

// drop counts a packet that is not sent.
func (l *loop) drop(p packet, why *atomic.Uint64) {
	why.Add(uint64(p.count))
	l.gone(p)
}

// gone takes a packet off the books.
func (l *loop) gone(p packet) {
	l.packets -= p.count
	l.bytes -= cap(p.frame)
	l.pool.put(p.frame)
}

// sleep waits for a frame, the next due time, the output, or to be woken; as long as
// something is in force not beyond the next beat.
func (l *loop) sleep() {
	t := now()
	wait, idle := int64(lookEvery), l.page.active.Load() == 0
	if !idle {
		wait = int64(beatEvery)
	} else if l.packets == 0 {
		l.pool.trim()
	}
	if ns := l.next - t; len(l.waiting) > 0 && !l.blocked && ns < wait {
		if wait = l.spin.wait(t, max(0, ns)); wait == 0 {
			return
		}
	}
	if stop := l.stopAt.Load(); stop != 0 {
		wait = min(wait, stop-t)
	}
	fds := [3]unix.PollFd{
		{Fd: int32(l.tap.fd), Events: unix.POLLIN},
		{Fd: int32(l.event), Events: unix.POLLIN},
		{Fd: int32(l.out.fd()), Events: unix.POLLOUT},
	}
	use := fds[:2]
	if l.blocked {
		use = fds[:]
	}
	timeout := unix.NsecToTimespec(max(0, wait))
	// An interrupted one only comes back early.
	if n, err := unix.Ppoll(use, &timeout, nil); n == 0 && err == nil {
		l.spin.woke(now() - t - wait)
	}
	if fds[1].Revents != 0 {
		var b [8]byte
		_, _ = unix.Read(l.event, b[:])
	}
	if l.blocked && fds[2].Revents&unix.POLLERR != 0 {
		_, _ = unix.GetsockoptInt(l.out.fd(), unix.SOL_SOCKET, unix.SO_ERROR) // takes it off
	}
	if idle {
		l.last = 0 // an idle thread sleeps longer than a beat; that is no stall
	}
}
