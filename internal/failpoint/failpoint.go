// Package failpoint names the steps at which a test may have this process killed. Only
// programs that were built with the tag "failpoints" have them; in all others At is
// empty.
package failpoint

import "slices"

// Env says where to kill a program with failpoints: "NAME", or "NAME:N" for the N-th time,
// from 1, that the step is passed.
const Env = "NETEMD_FAILPOINT"

// names are all there are; a test compares them with the calls of At in the tree.
var names = []string{
	// Making a fault.
	"lease.apply.begin", "lease.apply.intended", "lease.apply.offload", "lease.apply.place", "lease.apply.enforced", "lease.apply.recorded",
	// Taking one back that could not be made.
	"lease.undo.begin", "lease.undo.restored", "lease.undo.offload", "lease.undo.recorded",
	// Changing and renewing one.
	"lease.change.begin", "lease.change.intended", "lease.change.place", "lease.change.enforced", "lease.change.recorded",
	// Ending one: cleared, or its time over, which begins with a step of its own.
	"lease.expire.begin", "lease.clear.begin", "lease.clear.restored", "lease.clear.offload", "lease.clear.recorded",
	// Held by a client.
	"lease.hold.begin", "lease.hold.attached", "lease.hold.resumed", "lease.hold.released", "lease.hold.dropped",
	// Following host names.
	"lease.follow.begin", "lease.follow.intended", "lease.follow.came", "lease.follow.left",
	// Putting back what somebody else removed.
	"lease.repair.begin", "lease.repair.intended", "lease.repair.place", "lease.repair.recorded",
	// Handing over to the next agent, which puts them back as it makes others.
	"lease.keep.begin", "lease.restore.begin", "lease.restore.done",
}

// Names returns the names of all steps, sorted.
func Names() []string { return slices.Sorted(slices.Values(names)) }
