package verify

import (
	"context"
	"errors"
	"fmt"
)

// Run verifies the order's fault: it sends packets through each of its places and
// judges what arrives. progress, if not nil, is called from time to time with the
// packets sent so far. It needs CAP_NET_RAW in the namespaces of the paths and
// CAP_SYS_ADMIN to enter them, and takes as long as Options.Duration and the delay
// asked for, for each place; ctx ends it early, and then the error is ctx's cause.
//
// What cannot be measured at a place is an inconclusive place, not an error: a device
// whose packets would leave the host, an ingress that nothing on this host feeds.
func Run(ctx context.Context, o Order, progress func(sent, total int)) (Result, error) {
	if err := o.Options.Validate(); err != nil {
		return Result{}, fmt.Errorf("verify: %w", err)
	}
	return Result{}, fmt.Errorf("verify: %w", errors.ErrUnsupported)
}
