package lease

import (
	"context"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Engine carries out packet faults. Every method is idempotent and safe for
// concurrent use. What else an engine can do, as a ContentEngine, it is asked for by its
// methods; one that stands around another has a method Unwrap() Engine, and what it does not
// do by itself the other one is asked for.
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

// able finds who does T: e, or the engine that it stands around.
func able[T any](e Engine) (t T, ok bool) {
	for e != nil {
		if t, ok = e.(T); ok {
			return t, true
		}
		around, wraps := e.(interface{ Unwrap() Engine })
		if !wraps {
			break
		}
		e = around.Unwrap()
	}
	return t, false
}

// ContentEngine is an Engine that can also act on chosen packets. A rule at a place is
// a thing of its own, beside the impairment there and other rules. The methods are
// idempotent and safe for concurrent use.
type ContentEngine interface {
	// SetContent puts r into force at p until deadline, which the engine enforces by
	// itself. Setting what is in force already only moves the deadline: nothing is
	// counted anew. When it fails nothing of it is in force.
	SetContent(ctx context.Context, p target.Place, r content.Rule, deadline time.Time) error
	// ReadContent returns the counters of r at p, and whether it is in force; the error
	// is fs.ErrNotExist when p is gone.
	ReadContent(ctx context.Context, p target.Place, r content.Rule) (s fault.Status, inForce bool, err error)
	// ContentLog returns what r did at p, also for a short while after it was cleared.
	ContentLog(ctx context.Context, p target.Place, r content.Rule) (content.Log, error)
	// ClearContent takes r away from p; held packets leave when they are due.
	ClearContent(ctx context.Context, p target.Place, r content.Rule) error
}
