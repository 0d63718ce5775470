package prober

import (
	"errors"
	"math"
	"sync"
	"time"

	"netemd/internal/content"
	"netemd/internal/evidence"
	"netemd/probe"
)

const (
	// drain is the time between two looks at the kernel's evidence.
	drain = 250 * time.Millisecond
	// reports is the least time between two reports of how far a run is.
	reports = 100 * time.Millisecond
)

// flow takes samples from the child and events from the kernel while a run goes on,
// makes samples final and gives them away.
type flow struct {
	config    Config
	collector *evidence.Collector // nil: nothing can be traced
	drops     Drops               // nil: no record is kept
	began     time.Time
	done      chan struct{}
	ticks     sync.WaitGroup
	teller    *teller

	mu       sync.Mutex
	attr     *probe.Attributor
	recorder *probe.Recorder
	kept     []probe.Sample
	keep     int // how many may be kept; -1: none any more
	progress probe.Progress
	env      probe.Environment
	reported time.Time
	lost     uint64
	// some says that there was a fault whose drops are recorded, and partly that of one they
	// were not.
	some, partly bool
	// engine counts the packets that faults dropped, missed those that were not recorded.
	engine, missed uint64
	err            error
}

// newFlow makes one; quit ends the run of a teller that nobody listens to.
func newFlow(c Config, a probe.Attribution, quit func(error)) *flow {
	f := &flow{
		teller: newTeller(c.Sink, c.Report, quit),
		config: c, began: time.Now(), done: make(chan struct{}), keep: c.Keep,
		attr:     probe.NewAttributor(a),
		recorder: probe.NewRecorder(c.Order.Request.Target, c.Layer, a.Threshold),
		progress: probe.Progress{Count: c.Order.Request.Count},
	}
	if f.keep == 0 {
		f.keep = probe.DefaultKeep
	}
	return f
}

// start begins to look at the evidence, and to tell.
func (f *flow) start() {
	go f.teller.run()
	f.ticks.Go(func() {
		t := time.NewTicker(drain)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				f.tick()
			case <-f.done:
				return
			}
		}
	})
}

// take takes samples as their calls have ended; none when the child only says that it
// lives. It waits where those that are final are not taken.
func (f *flow) take(samples []probe.Sample) {
	f.enter(samples)
	f.teller.room()
}

func (f *flow) enter(samples []probe.Sample) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range samples {
		f.made(s)
		f.attr.Add(s)
		if s.Warmup {
			continue
		}
		f.progress.Done++
		if s.Class != probe.OK {
			f.progress.Failed++
		}
	}
	if now := time.Now(); now.Sub(f.reported) >= reports {
		f.report(now)
	}
}

func (f *flow) report(now time.Time) {
	f.reported = now
	f.progress.Elapsed = now.Sub(f.began)
	told := f.progress
	f.teller.give(nil, &told)
}

// tick makes final what ended long enough ago. The time is taken before the evidence, so
// that what a sample of that time needs is there.
func (f *flow) tick() {
	now := probe.Now()
	var events []probe.Retransmission
	var lost uint64
	var err error
	if f.collector != nil {
		events, err = f.collector.Drain()
		var e error
		lost, e = f.collector.Lost()
		err = errors.Join(err, e)
	}
	dropped, missed, e := f.drain()
	err = errors.Join(err, e)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
	f.drainDrops(dropped, missed)
	f.settle(events, lost, now)
	f.progress.P50, f.progress.P99 = f.recorder.Latency()
}

// settle makes samples final, and gives them away.
func (f *flow) settle(events []probe.Retransmission, lost uint64, now int64) {
	if f.lost = lost; lost > 0 {
		f.attr.NotTraced()
	}
	for _, e := range events {
		f.attr.Event(e)
	}
	if f.collector != nil {
		hops, _ := f.collector.Neighbours() // the attribution knows where they are not watched
		for _, e := range hops {
			f.attr.Neighbour(e)
		}
	}
	f.ask()
	final := f.attr.Flush(now)
	for _, s := range final {
		f.recorder.Add(s)
	}
	switch {
	case f.keep < 0:
	case len(f.kept)+len(final) > f.keep:
		f.kept, f.keep = nil, -1
	default:
		f.kept = append(f.kept, final...)
	}
	if len(final) > 0 {
		f.teller.give(final, nil)
	}
}

// ask has the faults of this moment told.
func (f *flow) ask() {
	c := f.config
	if c.Down != nil {
		f.attr.Down(c.Down())
	}
	if c.Held != nil {
		f.attr.HeldFrom(probe.Now(), c.Held())
	}
	some, all := true, true
	if c.Recorded != nil {
		some, all = c.Recorded()
	}
	f.some, f.partly = f.some || some, f.partly || !all
}

// stop ends the looks and makes everything final. An event was in the ring before the
// call that it delayed could end, and a collector's stop empties the ring: there is none
// to wait for.
func (f *flow) stop() (lost uint64, err error) {
	close(f.done)
	f.ticks.Wait()
	var events []probe.Retransmission
	if f.collector != nil {
		events, lost, err = f.collector.Stop()
	}
	dropped, missed, e := f.drain()
	if f.drops != nil {
		e = errors.Join(e, f.drops.Close())
	}
	err = errors.Join(err, e)
	lost, err = f.last(events, dropped, lost, missed), errors.Join(f.err, err)
	return lost, errors.Join(err, f.teller.close(lastWait))
}

// last makes everything final.
func (f *flow) last(events []probe.Retransmission, dropped []content.Record, lost, missed uint64) uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drainDrops(dropped, missed)
	f.settle(events, lost, math.MaxInt64)
	f.progress.P50, f.progress.P99 = f.recorder.Latency()
	f.report(time.Now())
	return lost + uint64(f.attr.Dropped())
}

// result is what there is at the end.
func (f *flow) result(source string, e end) probe.Result {
	s := f.recorder.Summary(source)
	f.recorder.Finish(&s, e.Load)
	s.UDP, s.Settings, s.Outages = e.UDP, e.Settings, e.Outages
	if env := f.env; s.UDP == nil {
		s.Environment = &env
	}
	if f.drops != nil && f.some && !f.partly {
		d := f.recorder.Drops()
		d.Engine, d.Missed = f.engine, f.missed
		s.Drops = &d
	}
	samples := f.kept
	if samples == nil {
		samples = []probe.Sample{}
	}
	probe.BySeq(samples)
	return probe.Result{Summary: s, Samples: samples}
}
