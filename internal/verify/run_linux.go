package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

const (
	// settling is how long a run waits for what the kernel prepares for it, such as
	// time stamps, before the first packet.
	settling = 30 * time.Millisecond
	// quiet is how long nothing must come, beyond what the fault delays, for a run to
	// be over, patience how long that is waited for.
	quiet    = 300 * time.Millisecond
	patience = 5 * time.Second
	// looks is how often the fault's state is read meanwhile.
	looks = 50 * time.Millisecond
)

// errSlow ends the sending where a machine is far too slow for it.
var errSlow = errors.New("sending took twice as long as it should")

// Run verifies the order's fault: it sends packets through each of its places and
// judges what arrives. progress, if not nil, is called from time to time with the
// packets sent so far, never twice at once. It needs CAP_NET_RAW in the namespaces of
// the paths and CAP_SYS_ADMIN to enter them, and takes as long as Options.Duration and
// the delay asked for, for each place; ctx ends it early, and then the error is ctx's
// cause.
//
// What cannot be measured at a place is an inconclusive place, not an error: a device
// whose packets would leave the host, an ingress that nothing on this host feeds. The
// error is fs.ErrNotExist for a place that is gone.
func Run(ctx context.Context, o Order, progress func(sent, total int)) (Result, error) {
	if err := o.Options.Validate(); err != nil {
		return Result{}, fmt.Errorf("verify: %w", err)
	}
	if progress == nil {
		progress = func(int, int) {}
	}
	o.Options = o.Options.Normalize()
	total := o.Options.Packets * len(o.Paths)
	result := Result{Fault: o.Fault, Verdict: Pass, Places: []PlaceResult{}}
	for i, p := range o.Paths {
		r, err := runPath(ctx, o, p, func(sent int) { progress(i*o.Options.Packets+sent, total) })
		if err != nil {
			return Result{}, fmt.Errorf("verify: %s: %w", p.Place, err)
		}
		result.Places = append(result.Places, r)
		progress((i+1)*o.Options.Packets, total)
	}
	conclude(&result)
	return result, nil
}

func runPath(ctx context.Context, o Order, p Path, progress func(int)) (PlaceResult, error) {
	n := p.Netem.Normalize()
	pl, err := planFor(ctx, p, o.Options)
	if err == nil {
		err = pl.check()
	}
	if no := (*impossibleError)(nil); errors.As(err, &no) {
		return PlaceResult{
			Placement: p.Place.String(), Asked: p.Netem.String(), Verdict: Inconclusive, Reason: no.reason, Checks: []Check{},
		}, nil
	}
	if err != nil {
		return PlaceResult{}, err
	}
	pk := packet{flow: pl.flow, size: pl.sizeFor(n, o.Options), run: uint32(time.Now().UnixNano()) ^ rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1)).Uint32()}
	if n.ECN {
		pk.ecn = ect0
	}
	s, notes, err := measure(ctx, o, p, pl, pk, progress)
	if err != nil {
		return PlaceResult{}, err
	}
	r := assess(s)
	r.Placement, r.Path = p.Place.String(), pl.words
	r.Packet = fmt.Sprintf("%s, %d bytes", pl.flow, pk.size)
	if asked := float64(o.Options.Rate); n.Rate == 0 && r.RatePacketsPerSecond < asked/2 {
		notes = append(notes, fmt.Sprintf("only %.0f of %.0f packets per second were sent: this machine is too slow for more", r.RatePacketsPerSecond, asked))
	}
	r.Notes = notes
	return r, nil
}

// sizeFor is the size of the packets: small, but of those on which a rate is measured
// some hundreds must fit in the time, and of those in which flips are looked for where
// not all are seen, most bits must be in sight.
func (pl plan) sizeFor(n qdisc.Netem, o Options) int {
	size := defaultSize
	switch {
	case n.Rate > 0:
		const packets = 250
		size = min(max(int(float64(n.Rate)*o.Duration().Seconds()/packets), smallestRate), 1400)
	case n.Corrupt > 0 && pl.view.after:
		size = corruptSize
	}
	return max(min(size, pl.mtu), minSize(pl.flow))
}

// measure sends and receives.
func measure(ctx context.Context, o Order, p Path, pl plan, pk packet, progress func(int)) (sighting, []string, error) {
	n := p.Netem.Normalize()
	frameSize := pk.size + pl.view.header
	due := schedule(n, o.Options, frameSize)
	out := sighting{netem: p.Netem, engine: o.Engine, size: frameSize, capable: n.ECN}
	if pl.view.after {
		// The EtherType, by which the capture is told what to see.
		out.blind = 16 / float64(8*frameSize)
	}
	c, err := newCapture(ctx, pl.view, pk)
	if err != nil {
		return out, nil, err
	}
	send, err := pl.open(ctx, pk)
	if err != nil {
		_, cerr := c.close()
		return out, nil, errors.Join(err, cerr)
	}
	defer func() { _ = send.close() }()

	before, notes := look(ctx, p)
	time.Sleep(settling)
	start := time.Now()
	var (
		frames  []frame
		readErr error
		wg      sync.WaitGroup
		stop    = make(chan struct{})
	)
	wg.Go(func() { frames, readErr = c.read(start, len(due), stop) })
	wg.Go(func() { out.full = watch(ctx, p, n, send, progress, stop) })

	limit := 2*due[len(due)-1] + patience
	sending, cancel := context.WithTimeoutCause(ctx, limit, errSlow)
	sent, late, err := send.run(sending, start, due)
	cancel()
	if errors.Is(err, errSlow) && len(sent) >= MinPackets {
		notes = append(notes, fmt.Sprintf("only %d of %d packets were sent in %v", len(sent), len(due), limit))
		err = nil
	}
	if err == nil {
		err = c.drain(ctx, start, longest(n, frameSize))
	}
	after, _ := look(ctx, p)
	close(stop)
	wg.Wait()
	missed, closeErr := c.close()
	if err := errors.Join(err, readErr, closeErr); err != nil {
		return out, nil, err
	}
	progress(len(sent))

	out.sent, out.late, out.missed = sent, lateness(n, due, sent, late), missed
	now := time.Now() // one look: between two this thread may have been kept waiting
	out.stepped = (now.Round(0).Sub(start.Round(0)) - now.Sub(start)).Abs() > slack/2
	for _, a := range settle(frames) {
		if a.number < len(sent) {
			out.arrivals = append(out.arrivals, a)
		}
	}
	slices.SortStableFunc(out.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	if before != nil && after != nil {
		out.counters = new(after.Counters.Since(before.Counters))
		out.missing = after.CountersMissing
		out.changed = before.Netem != after.Netem
	}
	return out, notes, nil
}

// lateness is how late this process was, sorted. A stall delays all packets that are
// due in it, in the fault's queue as here, so each counts, unless they come in bunches
// or the sender never keeps its pace: then only the timers do.
func lateness(n qdisc.Netem, due, sent, timers []time.Duration) []time.Duration {
	slices.Sort(timers)
	if n.Rate > 0 {
		return timers
	}
	all := make([]time.Duration, len(sent))
	for i, at := range sent {
		all[i] = max(at-due[i], 0)
	}
	slices.Sort(all)
	if len(all) > 0 && all[len(all)/2] > 5*slack {
		return timers
	}
	return all
}

func (pl plan) open(ctx context.Context, pk packet) (*sender, error) {
	if pl.device == 0 {
		return routed(ctx, pl.sender, pk)
	}
	return direct(ctx, pl.sender, pl.device, pl.header, pk)
}

// look reads the fault's state; without one it says why in a note.
func look(ctx context.Context, p Path) (*fault.Status, []string) {
	if p.Status == nil {
		return nil, []string{"the fault's counters are not known: what a full queue drops cannot be told from a loss"}
	}
	st, err := p.Status(ctx)
	if err != nil {
		return nil, []string{fmt.Sprintf("the fault's counters cannot be read: %v", err)}
	}
	return &st, nil
}

// watch reports progress, and whether the queue was seen full, until stop is closed.
func watch(ctx context.Context, p Path, n qdisc.Netem, s *sender, progress func(int), stop <-chan struct{}) bool {
	full := false
	tick := time.NewTicker(looks)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-stop:
			return full
		case <-tick.C:
		}
		if st, _ := look(ctx, p); st != nil {
			full = full || st.Queued >= uint64(n.Limit)
		}
		if i%2 == 1 {
			progress(int(s.sent.Load()))
		}
	}
}

// drain waits until nothing more is to come.
func (c *capture) drain(ctx context.Context, start time.Time, delay time.Duration) error {
	ended := time.Since(start)
	for {
		now := time.Since(start)
		last := max(time.Duration(c.last.Load()), 0)
		if now > ended+delay+patience || now > ended+delay+quiet && now > last+quiet {
			return nil
		}
		if _, err := sleepUntil(ctx, time.Now().Add(20*time.Millisecond)); err != nil {
			return err
		}
	}
}

// longest is how long n may hold a packet of a run, as far as that is bounded.
func longest(n qdisc.Netem, size int) time.Duration {
	d := delaysOf(n, 0).drawn(1) + max(n.Slot.MaxDelay, n.Slot.MinDelay) + n.Slot.Delay + 4*n.Slot.Jitter
	if n.Rate > 0 {
		each := time.Duration(float64(onWire(n, size)) / float64(n.Rate) * float64(time.Second))
		d += time.Duration(bunchTime) + 3*busyPackets*each
	}
	return d
}
