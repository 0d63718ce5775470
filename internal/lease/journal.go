package lease

import (
	"context"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// Journal remembers what is being done to the kernel, for those who clean up after this
// process. A method returns when the record would survive SIGKILL; its error refuses
// the change that was to follow. All are safe for concurrent use.
type Journal interface {
	// Intend is told before a fault changes anything at places. Again for the same
	// fault, the places are those from now on.
	Intend(ctx context.Context, f fault.Fault, places []target.Place) error
	// Hold is told before a fault is acknowledged: what it did is whole, and stands.
	Hold(ctx context.Context, f fault.Fault) error
	// End is told when nothing is left of a fault.
	End(ctx context.Context, id string, s fault.State) error
}

// Limits bound what a Manager holds; 0 is the default.
type Limits struct {
	// Faults are held at once; default MaxFaults. PerOwner are of one owner, default all.
	Faults, PerOwner int
	// Waiting are the Applies that wait for another fault's end; default 64.
	Waiting int
	// TTL is the time to live of a fault that asks for none, default fault.DefaultTTL;
	// MaxTTL the longest that is allowed, default fault.MaxTTL.
	TTL, MaxTTL time.Duration
}
