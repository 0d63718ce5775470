package lease

import (
	"context"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Engine carries out packet faults. Every method is idempotent and safe for
// concurrent use.
type Engine interface {
	// Set makes n the whole impairment at p, whatever was there before, until
	// deadline; an engine that can, ends it then by itself. When it fails, what was
	// there before is still in force.
	Set(ctx context.Context, p target.Place, n qdisc.Netem, deadline time.Time) error
	// Read returns what is in force at p: the zero Netem when there is nothing. The
	// error is fs.ErrNotExist when p is gone.
	Read(ctx context.Context, p target.Place) (fault.Status, error)
	// Clear takes the impairment away without losing a packet of its own, and
	// verifies that it is gone. Clearing what is not there is no error.
	Clear(ctx context.Context, p target.Place) error
	// Close clears what is left and releases everything.
	Close() error
}
