package lab

import (
	"context"
	"fmt"
	"sync"
)

// everyLab is the name by which who changes all labs takes his turn.
const everyLab = ""

// turns has changes of one lab one after the other, and those of all labs while nobody
// changes any. Different labs are changed at the same time.
type turns struct {
	mu    sync.Mutex
	busy  map[string]bool
	freed chan struct{} // closed when somebody is done; nil while nobody waits
}

// take waits for a lab's turn, or for that of all.
func (t *turns) take(ctx context.Context, lab string) error {
	for {
		wait := t.try(lab)
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("waiting for another change of a lab: %w", context.Cause(ctx))
		}
	}
}

// try takes the turn, or returns what is closed when it may be free.
func (t *turns) try(lab string) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[everyLab] || t.busy[lab] || lab == everyLab && len(t.busy) > 0 {
		if t.freed == nil {
			t.freed = make(chan struct{})
		}
		return t.freed
	}
	if t.busy == nil {
		t.busy = map[string]bool{}
	}
	t.busy[lab] = true
	return nil
}

func (t *turns) leave(lab string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, lab)
	if t.freed != nil {
		close(t.freed)
		t.freed = nil
	}
}
