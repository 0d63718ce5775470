package fault

import (
	"errors"
	"io/fs"
	"time"
)

// ErrConflict is returned, wrapped with holder, age and time to live, when
// another owner's fault stands on the same flow, or the same one's sets the same
// thing.
var ErrConflict = errors.New("conflict")

// ErrBusy is returned, wrapped with what is in progress, for what is done a few at a
// time: it may be asked for again later.
var ErrBusy = errors.New("busy")

// ErrProtected is returned, wrapped with what would be cut off and by which Force it
// is allowed, for a fault by which one could lock oneself out. It matches
// fs.ErrPermission.
var ErrProtected error = protected{}

type protected struct{}

func (protected) Error() string        { return "protected" }
func (protected) Is(target error) bool { return target == fs.ErrPermission }

// Event is something that happened to a fault.
type Event struct {
	Time time.Time
	// Kind is applied, changed, renewed, expired, cleared, lost, drifted or repaired.
	Kind  string
	Fault Fault
}

// Selector names the faults to clear. Exactly one of ID, Target, Device and All is set.
type Selector struct {
	ID, Target string
	// Device is target.Selector's Name: "v0@blue".
	Device string
	// Cookie (SO_NETNS_COOKIE) and Index are the device that has that name now; 0 for
	// none. The agent sets them.
	Cookie uint64
	Index  int
	All    bool
}
