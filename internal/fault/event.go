package fault

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// ErrConflict is returned, wrapped with holder, age and time to live, when
// another owner's fault stands on the same flow, or one that a command holds, or the same
// owner's sets the same thing.
var ErrConflict = errors.New("conflict")

// ErrBusy is returned, wrapped with what is in progress, for what is done a few at a
// time: it may be asked for again later.
var ErrBusy = errors.New("busy")

// FullHook says of the kernel's ERANGE that a hook of a device has as many programs as it takes
// (BPF_MPROG_MAX of linux/bpf_mprog.h, less one that ends the list). It matches ErrBusy.
func FullHook(err error) error {
	return WithHint(fmt.Errorf("%w: 63 programs are there already, which is the most that the kernel takes at a hook of a device (%w)", ErrBusy, err),
		"each fault takes one: clear some there, or say several flows as one fault (--port 5000-5100, --dst A,B)")
}

// ErrProtected is returned, wrapped with what would be cut off and by which Force it
// is allowed, for a fault by which one could lock oneself out. It matches
// fs.ErrPermission.
var ErrProtected error = protected{}

type protected struct{}

func (protected) Error() string        { return "protected" }
func (protected) Is(target error) bool { return target == fs.ErrPermission }

// ErrMissed is returned, wrapped with what there is, when events after a number were
// asked for that are no longer kept, or that another life of the agent gave: list again.
var ErrMissed = errors.New("events were missed")

// ErrDenied is returned, wrapped with verb, target and peer, for what the configuration
// does not allow. It matches fs.ErrPermission.
var ErrDenied error = denied{}

type denied struct{}

func (denied) Error() string        { return "denied" }
func (denied) Is(target error) bool { return target == fs.ErrPermission }

// Event is something that happened to a fault.
type Event struct {
	// Number counts the events of the agent's life from 1, and Life names that.
	Number uint64
	Life   string
	Time   time.Time
	// Monotonic is CLOCK_MONOTONIC of the agent's machine, in ns.
	Monotonic int64
	// Kind is applied, changed, renewed, step, expired, cleared, lost, drifted, repaired or
	// reattached; of an outage also down, up, ready, skipped and failed.
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
