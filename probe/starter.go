package probe

import (
	"sync"
	"time"
)

// Starter makes calls that nobody waits for, so that they need no goroutine each and
// begin on the thread that keeps the schedule.
type Starter interface {
	// Start begins the call that s describes by its Seq, DueNS and Warmup, and returns
	// without waiting for the network. The call has until a time on the clock of samples;
	// done gets its sample once, at most 200 ms after that, from any goroutine, maybe
	// before Start returns. done does not block. Start is called from one goroutine at a
	// time.
	Start(s Sample, until int64, done func(Sample))
	// CutOff ends all calls that are under way; they are done within 200 ms. None is
	// started after it.
	CutOff()
}

// Deadline is the end of something that may take no longer. Its owner sets Expire before
// the first Add and does not change it.
type Deadline struct {
	// Expire is called once the time is over; not after a Remove that says true.
	Expire func()

	until      int64
	prev, next *Deadline
	in         bool
}

// Deadlines keeps many deadlines by one timer, which is set once for all that come while
// it runs: a timer for each call would cost as much as a small call does. An end is at
// most some ms late, and never early. The zero value is empty; it is safe for concurrent
// use.
type Deadlines struct {
	mu          sync.Mutex
	first, last *Deadline
	timer       *time.Timer
	armed       int64 // when it goes off; 0: not set
	stopped     bool
}

// Add enters d, which is not in it, with its end on the clock of samples. It is cheapest
// where ends are in the order of their entries.
func (l *Deadlines) Add(d *Deadline, until int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	d.until, d.in = until, true
	before := l.last
	for before != nil && before.until > until {
		before = before.prev
	}
	if d.prev = before; before == nil {
		d.next, l.first = l.first, d
	} else {
		d.next, before.next = before.next, d
	}
	if d.next == nil {
		l.last = d
	} else {
		d.next.prev = d
	}
	if !l.stopped && (l.armed == 0 || until < l.armed) {
		l.arm(until)
	}
}

// arm sets the timer; the caller holds mu.
func (l *Deadlines) arm(until int64) {
	l.armed = until
	wait := time.Duration(until - Now())
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.sweep)
		return
	}
	l.timer.Reset(wait)
}

// Remove takes d out, and reports whether it was in: then its Expire is not called.
func (l *Deadlines) Remove(d *Deadline) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.remove(d)
}

func (l *Deadlines) remove(d *Deadline) bool {
	if !d.in {
		return false
	}
	if d.prev == nil {
		l.first = d.next
	} else {
		d.prev.next = d.next
	}
	if d.next == nil {
		l.last = d.prev
	} else {
		d.next.prev = d.prev
	}
	d.in, d.prev, d.next = false, nil, nil
	return true
}

func (l *Deadlines) sweep() {
	l.mu.Lock()
	now := Now()
	over := l.take(func(d *Deadline) bool { return d.until <= now })
	if l.armed = 0; l.first != nil && !l.stopped {
		l.arm(l.first.until)
	}
	l.mu.Unlock()
	for _, d := range over {
		d.Expire()
	}
}

// take removes the first ones that are meant; the caller holds mu.
func (l *Deadlines) take(meant func(*Deadline) bool) (out []*Deadline) {
	for d := l.first; d != nil && meant(d); d = l.first {
		l.remove(d)
		out = append(out, d)
	}
	return out
}

// Expire ends everything that is in it now.
func (l *Deadlines) Expire() {
	l.mu.Lock()
	over := l.take(func(*Deadline) bool { return true })
	l.mu.Unlock()
	for _, d := range over {
		d.Expire()
	}
}

// Stop expires everything, and stops the timer: nothing that is added later expires by
// itself.
func (l *Deadlines) Stop() {
	l.mu.Lock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
	l.mu.Unlock()
	l.Expire()
}
