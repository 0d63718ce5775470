package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// workers is how many steps of a lab run at the same time. Each has a thread inside a
// namespace, and the kernel takes most of them one after the other anyway.
const workers = 4

// each runs f for 0 to n-1, some at the same time, and returns when all have ended. The
// first error, or the end of ctx, keeps those from starting that have not; all errors are
// returned.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu   sync.Mutex
		next int
		errs []error
		wg   sync.WaitGroup
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		if next == n || context.Cause(ctx) != nil {
			return 0, false
		}
		next++
		return next - 1, true
	}
	for range min(workers, n) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := f(ctx, i); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	if len(errs) == 0 {
		return context.Cause(ctx)
	}
	return errors.Join(errs...)
}

// all runs f for 0 to n-1, some at the same time, goes on after errors and returns them.
func all(n int, f func(i int) error) error {
	var (
		mu   sync.Mutex
		errs []error
	)
	err := each(context.Background(), n, func(_ context.Context, i int) error {
		if err := f(i); err != nil {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		}
		return nil
	})
	return errors.Join(append(errs, err)...)
}

// counter tells how far many equal steps are: each tenth of them where they are many. It is safe for
// concurrent use.
type counter struct {
	mu   sync.Mutex
	what string
	done int
	of   int
	tell func(string)
}

// count tells the beginning, too.
func count(tell func(string), what string, of int) *counter {
	tell(fmt.Sprintf("%s 0/%d", what, of))
	return &counter{what: what, of: of, tell: tell}
}

func (c *counter) step() {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.done * 10 / c.of
	c.done++
	if c.done == c.of || c.of >= 50 && c.done*10/c.of != before {
		c.tell(fmt.Sprintf("%s %d/%d", c.what, c.done, c.of))
	}
}
