package probe

import (
	"context"
	"errors"
	"sync"
)

// errBudget is the cause of a call's end when its budget is used up.
var errBudget = errors.New("the call's budget is used up")

// Caller makes one call. Call returns soon after ctx ends, whatever the network
// does, and is safe for concurrent use.
type Caller interface {
	Call(ctx context.Context, seq int) Sample
}

// Run makes r.Count calls with r.Concurrency workers, each of which starts its
// next call when its last one has ended (a closed loop), and gives every call the
// budget r.Timeout. each, which may be nil, is told of every sample as it is
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
		done    int
		results = make([]*Sample, r.Count)
	)
	take := func() (seq int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == r.Count || ctx.Err() != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(r.Concurrency, r.Count) {
		wg.Go(func() {
			for seq, ok := take(); ok; seq, ok = take() {
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
