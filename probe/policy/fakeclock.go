package policy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// FakeClock is a Clock whose time passes when it is told, for tests. What is due is done
// in the order of its time, and of its making where that is the same, one after the other, on
// the goroutine that advances. It is safe for concurrent use; one goroutine advances it.
type FakeClock struct {
	// Settle, which may be nil, returns when all goroutines that the last step woke wait
	// again: testing/synctest.Wait. It is called before each step of time, and at the end.
	Settle func()

	mu     sync.Mutex
	now    int64
	made   int
	timers []*fakeTimer
}

type fakeTimer struct {
	at   int64
	made int
	f    func()
}

// NewFakeClock is a clock that stands at 1 s, so that no time on it is 0.
func NewFakeClock() *FakeClock { return &FakeClock{now: int64(time.Second)} }

// Now is where the clock stands.
func (c *FakeClock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc is told of when the clock has been advanced by d.
func (c *FakeClock) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &fakeTimer{at: c.now + int64(max(d, 0)), made: c.made, f: f}
	c.made++
	c.timers = append(c.timers, t)
	return func() bool { return c.remove(t) }
}

func (c *FakeClock) remove(t *fakeTimer) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.timers, t)
	if i < 0 {
		return false
	}
	c.timers = slices.Delete(c.timers, i, i+1)
	return true
}

// Advance lets d pass, and does on the way what is due.
func (c *FakeClock) Advance(d time.Duration) {
	end := c.Now() + int64(d)
	for c.settle(); c.step(end); c.settle() {
	}
	c.mu.Lock()
	c.now = end
	c.mu.Unlock()
}

// Run advances from one due time to the next until nothing is due any more.
func (c *FakeClock) Run() {
	const never = int64(1<<63 - 1)
	for c.settle(); c.step(never); c.settle() {
	}
}

func (c *FakeClock) settle() {
	if c.Settle != nil {
		c.Settle()
	}
}

// step does what is due next, if that is not after end.
func (c *FakeClock) step(end int64) bool {
	c.mu.Lock()
	var next *fakeTimer
	for _, t := range c.timers {
		if next == nil || t.at < next.at || t.at == next.at && t.made < next.made {
			next = t
		}
	}
	if next == nil || next.at > end {
		c.mu.Unlock()
		return false
	}
	c.timers = slices.DeleteFunc(c.timers, func(t *fakeTimer) bool { return t == next })
	c.now = next.at
	c.mu.Unlock()
	next.f()
	return true
}

// WithTimeout is a context that ends by this clock, with context.DeadlineExceeded.
// Its Deadline counts from the Unix epoch, as TimeOf does.
func (c *FakeClock) WithTimeout(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	at := TimeOf(c.Now() + int64(d))
	if before, ok := parent.Deadline(); ok && before.Before(at) {
		return context.WithCancel(parent)
	}
	ctx := &fakeContext{Context: parent, at: at, done: make(chan struct{})}
	stop := c.AfterFunc(d, func() { ctx.end(context.DeadlineExceeded) })
	parted := context.AfterFunc(parent, func() { ctx.end(parent.Err()) })
	return ctx, func() {
		stop()
		parted()
		ctx.end(context.Canceled)
	}
}

// TimeOf is a time on a FakeClock as its contexts have it in their Deadline.
func TimeOf(ns int64) time.Time { return time.Unix(0, ns) }

// fakeContext has its own channel and error, so that contexts below it end with its
// error and not with the parent's.
type fakeContext struct {
	context.Context //nolint:containedctx // it is one
	at              time.Time
	done            chan struct{}

	mu  sync.Mutex
	err error
}

func (c *fakeContext) Deadline() (time.Time, bool) { return c.at, true }
func (c *fakeContext) Done() <-chan struct{}       { return c.done }

func (c *fakeContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *fakeContext) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		close(c.done)
	}
}
