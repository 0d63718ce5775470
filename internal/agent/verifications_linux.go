package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"netemd/internal/fault"
)

// maxVerifications is how many faults are verified at once. Each sends 2,000 packets a
// second by default, from threads of its own; more would measure one another.
const maxVerifications = 4

// verifications are those in progress, by their faults' ids. The zero value has none.
type verifications struct {
	mu sync.Mutex
	of map[string]bool
}

// begin lets a verification of a fault begin, which ends with end. The error is
// fault.ErrBusy while that fault is verified already, whose packets would count for both,
// or maxVerifications others are.
func (v *verifications) begin(id string) (end func(), err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.of[id]:
		err = fmt.Errorf("verify: %w: fault %s is being verified already", fault.ErrBusy, id)
	case len(v.of) >= maxVerifications:
		err = fmt.Errorf("verify: %w: %d faults are being verified, which is the most at once: %s",
			fault.ErrBusy, len(v.of), strings.Join(slices.Sorted(maps.Keys(v.of)), ", "))
	}
	if err != nil {
		return nil, fault.WithHint(err, "try again when that has ended; the fault stays as it is")
	}
	if v.of == nil {
		v.of = map[string]bool{}
	}
	v.of[id] = true
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		delete(v.of, id)
	}, nil
}
