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
	"lease.step.begin", "lease.step.place", "lease.step.enforced",

	// Segmentation offload: switched off and back.
	"offload.off.recorded", "offload.off.features", "offload.off.segments",
	"offload.back.features", "offload.back.segments", "offload.back.forgotten",

	// The ebpf engine. A place is armed, has a fault, and is disarmed.
	"ebpf.place.page", "ebpf.place.program", "ebpf.place.attached", "ebpf.place.armed", "ebpf.fault.set", "ebpf.fault.open",
	"ebpf.place.detached", "ebpf.place.disarmed",
	// Its queue.
	"ebpf.tap.made", "ebpf.tap.up", "ebpf.queue.socket", "ebpf.queue.return", "ebpf.queue.started", "ebpf.queue.drained", "ebpf.queue.released",
	// A rule that chooses packets.
	"ebpf.rule.ring", "ebpf.rule.connections", "ebpf.rule.set",
	// A program of others came before its own.
	"ebpf.lead.attached", "ebpf.lead.detached",
	// Where the kernel has no tcx.
	"ebpf.clsact.added", "ebpf.filter.added", "ebpf.filter.gone", "ebpf.clsact.gone",

	// The netem engine. A root of a device of ours; that of an ifb changes too.
	"netem.root.added", "netem.root.changed",
	// The way back to a device that has no clsact.
	"netem.gate.made", "netem.gate.alias", "netem.gate.clsact", "netem.gate.filter", "netem.gate.up", "netem.gate.gone",
	// What the packets are sent to, and what sends them there.
	"netem.ifb.made", "netem.ifb.alias", "netem.ifb.root", "netem.ifb.up", "netem.ifb.gone", "netem.remains.gone",
	"netem.clsact.recorded", "netem.clsact.added", "netem.clsact.handed", "netem.clsact.gone", "netem.filter.set", "netem.filter.gone",

	// A proxy of somebody else's Toxiproxy: what is made there, and taken away.
	"toxiproxy.watched", "toxiproxy.made", "toxiproxy.toxic", "toxiproxy.enabled", "toxiproxy.removed", "toxiproxy.deleted",

	// A target that is added or removed.
	"target.written", "target.recorded",

	// A lab.
	"lab.up.recorded", "lab.up.marked", "lab.up.sysctls", "lab.up.bridge", "lab.up.namespace", "lab.up.veth", "lab.up.link",
	"lab.up.address", "lab.up.rule", "lab.up.route", "lab.up.node", "lab.up.impaired",
	"lab.up.device", "lab.up.complete",
	"lab.service.listed", "lab.service.cluster", "lab.service.started", "lab.service.ready",
	"lab.down.service", "lab.down.namespace", "lab.down.files", "lab.down.record",
}

// Names returns the names of all steps, sorted.
func Names() []string { return slices.Sorted(slices.Values(names)) }
