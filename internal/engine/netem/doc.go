// Package netem carries packet faults out with the kernel's sch_netem.
//
// On devices that netemd made, each has a neutral netem root from the beginning, and
// a fault only ever changes that root in place, since adding and deleting one loses
// packets. The root impairs everything that leaves the device, whatever the flow of
// the place is.
//
// On devices of others, at egress or ingress, nothing is touched that stands there. A
// place gets an ifb of its own, in the namespace of the device, whose root is a netem;
// a filter at the device's clsact (cls_bpf, with the program of package match) sends
// the selected packets there, and from the ifb they go on from where they were. What
// is not selected goes on to the next filter. A fault is changed in the ifb's root, in
// place, and gets another flow by one replacement of the filter. When it is cleared,
// the filter goes first, the ifb when it is empty.
//
// What to know of that:
//
//   - Adding a clsact to a device, and deleting it, makes the kernel stop the device
//     for a moment (dev_deactivate in qdisc_graft of net/sched/sch_api.c): what waits in
//     the queue of its root then, and what it is to send until an RCU grace period is
//     over, some milliseconds, is lost, of any flow. Where a clsact stands already,
//     nothing is lost by applying, changing and clearing.
//   - Our filter is put before everybody's. Where a list of another kind has
//     preference 1, it comes behind that, and a verdict there ends a packet's way; Notes
//     says so.
//   - A selected packet skips the filters behind ours. At egress it passes the hook a
//     second time, where the first filter that matches it lets it go without its
//     actions; programs that decide by themselves (direct action, tcx) see it twice. At
//     ingress it skips the taps and the netfilter ingress hook on its way back.
//   - Where flows overlap, a packet meets one fault only: that of the later filter.
//   - Each fault has a netem of its own on a device of its own, so kernels that refuse a
//     netem which duplicates beside another one on a device have nothing to refuse.
//   - A hook whose filters are in a block that devices share, and egress beside an
//     ingress qdisc, are refused with a ConflictError.
//
// Everything that an undo needs is in the kernel: the ifb's alias is made first and
// goes last, so Sweep finds what a killed process left. An alias says whether the
// clsact is ours; with several faults on a device the last one takes it away, unless
// something else stands in it by then.
//
// netem cannot end a fault by itself, so the deadline is its caller's to keep.
package netem
