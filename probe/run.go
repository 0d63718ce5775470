package probe

import (
	"context"
	"errors"
	"sync"
	"time"
)

// errBudget is the cause of a call's end when its budget is used up.
var errBudget = errors.New("the call's budget is used up")

// Caller makes one call. Call returns soon after ctx ends, whatever the network
// does, and is safe for concurrent use.
type Caller interface {
	Call(ctx context.Context, seq int) Sample
}

// Run makes r.Count calls with r.Concurrency workers, each of which starts its
// next call when its last one has ended (a closed loop) and r.Pace has passed since
// the last start of any, and gives every call the budget r.Timeout. each, which may be nil, is told of every sample as it is
// taken, one at a time.
//
// When ctx ends, Run starts no more calls and returns the samples that it has,
// ordered by Seq, with ctx's cause. A call that ctx cut off is no measurement and
// is left out; one that had ended, however it ended, is kept.
func Run(ctx context.Context, c Caller, r Request, each func(done, count int, s Sample)) ([]Sample, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	r = r.WithDefaults()
	var (
		mu      sync.Mutex
		wg      sync.WaitGroup
		next    int
		start   = time.Now()
		done    int
		results = make([]*Sample, r.Count)
	)
	// take gives the next call away, and the time until it may start.
	take := func() (seq int, wait time.Duration, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == r.Count || ctx.Err() != nil {
			return 0, 0, false
		}
		next++
		if wait = time.Until(start); wait < 0 || r.Pace == NoPace {
			start, wait = time.Now(), 0
		}
		start = start.Add(r.Pace)
		return next - 1, wait, true
	}
	for range min(r.Concurrency, r.Count) {
		wg.Go(func() {
			for seq, wait, ok := take(); ok; seq, wait, ok = take() {
				if !rest(ctx, wait) {
					return
				}
				call, cancel := context.WithTimeoutCause(ctx, r.Timeout, errBudget)
				s := c.Call(call, seq)
				cutOff := s.Class != OK && errors.Is(call.Err(), context.Canceled)
				cancel()
				if cutOff {
					return
				}
				mu.Lock()
				done++
				results[seq] = &s
				if each != nil {
					each(done, r.Count, s)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	samples := make([]Sample, 0, done)
	for _, s := range results {
		if s != nil {
			samples = append(samples, *s)
		}
	}
	if done < r.Count {
		return samples, context.Cause(ctx)
	}
	return samples, nil
}

// rest waits, and reports whether ctx has not ended.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
