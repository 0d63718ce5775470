package ebpf

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"netemd/internal/target"
)

// hookKey is one hook of one device, as asked for.
type hookKey struct {
	namespace string
	index     int
	hook      target.Hook
}

// hook is what places at the same hook share.
type hook struct {
	// id is unique in the engine's life.
	id uint32
	// places counts those on the books; guarded by the engine.
	places int
	// queues says that there is or was a queue.
	queues atomic.Bool
	// mu keeps the order of ranks the order of attaching; it guards rank, the last one.
	mu   sync.Mutex
	rank uint32

	// marks are those in use of the queues at an ingress, and mark the last one given:
	// one that came free is given again as late as can be.
	marksMu sync.Mutex
	marks   [maxMarks + 1]bool
	mark    uint32
}

// next is the rank of a place that comes before all others.
func (h *hook) next() uint32 {
	h.rank++
	return h.rank
}

// takeMark returns a free mark, and waits up to drainLimit for one while queues go.
func (h *hook) takeMark(ctx context.Context) (uint32, error) {
	for end := time.Now().Add(drainLimit); ; time.Sleep(10 * time.Millisecond) {
		if m := h.freeMark(); m != 0 {
			return m, nil
		}
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		if time.Now().After(end) {
			return 0, fmt.Errorf("more than %d queues at one ingress: %w", maxMarks, errors.ErrUnsupported)
		}
	}
}

func (h *hook) freeMark() uint32 {
	h.marksMu.Lock()
	defer h.marksMu.Unlock()
	for range maxMarks {
		h.mark = h.mark%maxMarks + 1
		if !h.marks[h.mark] {
			h.marks[h.mark] = true
			return h.mark
		}
	}
	return 0
}

func (h *hook) giveMark(m uint32) {
	h.marksMu.Lock()
	defer h.marksMu.Unlock()
	h.marks[m] = false
}
