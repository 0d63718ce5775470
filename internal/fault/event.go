package fault

import (
	"errors"
	"time"
)

// ErrConflict is returned, wrapped with holder, age and time to live, when
// another owner's fault stands on the same flow, or the same one's sets the same
// thing.
var ErrConflict = errors.New("conflict")

// Event is something that happened to a fault.
type Event struct {
	Time time.Time
	// Kind is applied, changed, renewed, expired, cleared, lost, drifted or repaired.
	Kind  string
	Fault Fault
}

// Selector names the faults to clear. Exactly one field is set.
type Selector struct {
	ID, Target string
	// Device is target.Selector's Name: "v0@blue".
	Device string
	All    bool
}
