package probe

import "context"

// Caller makes one call. Call returns at most 200 ms after ctx ends, whatever the
// network does, and is safe for concurrent use.
type Caller interface {
	Call(ctx context.Context, seq int) Sample
}
