package prober

import (
	"errors"
	"fmt"

	"netemd/probe"
)

// underPolicy puts the order's policy around a caller.
func (o Order) underPolicy(c probe.Caller) (probe.Caller, error) {
	if len(o.Policy) == 0 {
		return c, nil
	}
	return nil, fmt.Errorf("probe: policy: %w", errors.ErrUnsupported)
}
