package load

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"netemd/probe"
)

// ErrBudget is the cause of a call's end when its budget is used up.
var ErrBudget = errors.New("the call's budget is used up")

// Options say how a run differs from what its request says. The zero value is a run by
// the machine's clock whose calls have the request's Timeout each.
type Options struct {
	// OwnBudget leaves it to the caller to bound its calls, as a policy does that has a
	// limit for each attempt.
	OwnBudget bool
	// Starter, when set, makes the calls of an open loop instead of the Caller, each with
	// the request's Timeout: it begins them on the schedule's own thread.
	Starter probe.Starter
	// Clock is for tests; nil: the clock of samples, with the kernel's timers.
	Clock Clock
}

// Run makes the calls of r, and tells each, one at a time, of every sample as its call
// ends.
//
// In a closed loop r.Concurrency workers start their next call when their last one has
// ended and r.Pace has passed since the last start of any. In an open loop every call
// starts when it is due, as a goroutine of its own; the schedule is kept by one thread
// that the kernel wakes, a real-time one where that is allowed. A call that is due when
// r.Open.MaxInFlight others are under way starts when one of them has ended. While each
// blocks, calls go on only up to MaxInFlight, with a Starter up to 8192 more, or not at all.
//
// After r.Duration, or the end of the stages, no call starts any more: what was due before
// and still waits for a place is Load.NotStarted, and has no sample. Those under way
// have their budget to end in. When ctx ends, no call starts any more, and those under
// way are cut off; Run returns ctx's cause. A call that ctx cut off is no measurement
// and is left out; one that had ended, however it ended, is kept. The Load is that of
// what was done, also with an error.
func Run(ctx context.Context, c probe.Caller, r probe.Request, o Options, each func(probe.Sample)) (probe.Load, error) {
	if err := r.Validate(); err != nil {
		return probe.Load{}, err
	}
	r = r.WithDefaults()
	if r.Seed == 0 {
		r.Seed = DrawSeed()
	}
	l := &run{request: r, options: o, caller: c, each: each, precise: o.Clock == nil && r.Open != nil}
	switch {
	case o.Clock != nil:
		l.clock = o.Clock
	case r.Open != nil:
		l.clock = pacer{}
	default:
		l.clock = timers{}
	}
	l.began = l.clock.Now()
	l.lastEnd = l.began
	var all bool
	if r.Open != nil {
		all = l.open(ctx)
	} else {
		all = l.closed(ctx)
	}
	load := l.load()
	if l.stuck {
		return load, fmt.Errorf("%d calls have not ended %v after their budget", l.places.taken.Load(), patience)
	}
	if !all || load.CutOff > 0 || load.Started+load.NotStarted < l.due { // what was due and never began was cut off as well
		return load, context.Cause(ctx)
	}
	return load, nil
}

// DrawSeed draws a seed that every JSON reader can hold: below 2^53.
func DrawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // it never fails
	return max(1, binary.NativeEndian.Uint64(b[:])>>11)
}

// run is the state of one run.
type run struct {
	request probe.Request
	options Options
	caller  probe.Caller
	clock   Clock
	precise bool
	each    func(probe.Sample)
	calls   sync.WaitGroup

	began int64

	telling sync.Mutex // for each

	mu        sync.Mutex
	started   int
	inFlight  int
	most      int
	cutOff    int
	lastStart int64
	lastEnd   int64

	// of the goroutine that gives the calls away, or under mu where there are several
	counted int           // given away beside the warm-up
	due     int           // calls of an open loop's schedule so far
	span    time.Duration // until the last of them
	// notStarted are those that waited for a place when the run was over
	notStarted int
	places     places
	stuck      bool
}

// isWarmup reports whether a call that is due at a time is one of the warm-up.
func (l *run) isWarmup(at int64) bool { return at < l.began+int64(l.request.Warmup) }

// begun counts a call that begins.
func (l *run) begun(at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight++
	l.most = max(l.most, l.inFlight)
	l.started++
	l.lastStart = max(l.lastStart, at)
}

// ended counts a call that has ended.
func (l *run) ended(at int64, cutOff bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.lastEnd = max(l.lastEnd, at)
	if cutOff {
		l.cutOff++
	}
}

// call makes one call and tells of it. due is 0 in a closed loop.
func (l *run) call(ctx context.Context, seq int, due int64, warmup bool) {
	l.begun(l.clock.Now())
	budget, cancel := ctx, context.CancelFunc(func() {})
	if !l.options.OwnBudget {
		budget, cancel = context.WithTimeoutCause(ctx, l.request.Timeout, ErrBudget)
	}
	s := l.caller.Call(budget, seq)
	cutOff := s.Class != probe.OK && ctx.Err() != nil
	cancel()
	s.DueNS, s.Warmup = due, warmup

	l.ended(l.clock.Now(), cutOff)
	if cutOff || l.each == nil {
		return
	}
	l.telling.Lock()
	defer l.telling.Unlock()
	l.each(s)
}

// load is what was done.
func (l *run) load() probe.Load {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := probe.Load{
		Loop: "closed", ElapsedMS: float64(l.lastEnd-l.began) / float64(time.Millisecond),
		Started: l.started, NotStarted: l.notStarted, CutOff: l.cutOff, InFlightMax: l.most, Seed: l.request.Seed,
	}
	if l.request.Open != nil {
		out.Loop, out.MaxInFlight = "open", l.request.Open.MaxInFlight
	}
	// n calls have n-1 intervals between their starts
	if d := time.Duration(l.lastStart - l.began); l.started > 1 && d > 0 {
		out.Achieved = float64(l.started-1) / d.Seconds()
	}
	if l.request.Open != nil && l.due > 1 && l.span > 0 {
		asked := float64(l.due-1) / l.span.Seconds()
		out.Asked = &asked
	}
	return out
}
