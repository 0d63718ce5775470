// Package netem carries packet faults out with the kernel's sch_netem.
//
// On devices that netemd made, each has a neutral netem root from the beginning, and
// a fault only ever changes that root in place, since adding and deleting one loses
// packets. The root impairs everything that leaves the device, whatever the flow of
// the place is.
//
// On devices of others, at egress or ingress, nothing is touched that stands there. A
// place gets an ifb of its own, in the namespace of the device, whose root is a netem;
// what we put at the device's hook sends the selected packets there, and from the ifb
// they go on from where they were. What is not selected goes on to what else stands at
// the hook. A fault is changed in the ifb's root, in place, and gets another flow by one
// replacement at the hook. When it is cleared, what is at the hook goes first, the ifb
// when it is empty.
//
// What is at the hook is one of two things:
//
//   - A tcx program, where the kernel has tcx (Linux 6.6 or later), the device has
//     Ethernet's header (a loopback has), and no clsact stands there. Nothing is lost by
//     applying, changing and clearing, of any flow. It ends with this process, and the
//     fault with it, at once; what waits then goes on.
//   - A filter at a clsact (cls_bpf, with the program of package match), everywhere
//     else. To add a clsact, and to delete it, the kernel stops the device for a moment
//     (dev_deactivate in qdisc_graft of net/sched/sch_api.c): what waits in the queue of
//     its root then, and what it is to send until an RCU grace period is over, some
//     milliseconds, is lost, of any flow. Where a clsact stands already, nothing is.
//
// From an ifb's tasklet packets come back with the sign that filters shall skip them
// once. At ingress the hook itself looks at it, and nothing there sees them again. At
// egress only the actions of a filter do, so without a clsact they would carry it to the
// ingress of a veth's other end, and be skipped there. Hence egress by tcx has a macvlan
// in the ifb's stead and a gate below it: see gatekeeper.
//
// What to know of both:
//
//   - Where flows overlap, a packet meets one fault only: that which came last.
//   - What somebody else has before ours, such as XDP at ingress, or a program that was
//     put before it at tcx, may take a packet first. Notes names what was there when the
//     fault was set last.
//   - At ingress a selected packet skips what is behind ours at the hook, and on its way
//     back the taps and the netfilter ingress hook.
//   - Each fault has a netem of its own on a device of its own, so kernels that refuse a
//     netem which duplicates beside another one on a device have nothing to refuse.
//   - Beside a fault of the ebpf engine on the same flow a packet meets both, once each.
//
// Of the way by tcx:
//
//   - Our program is put before everybody's, but behind the ebpf engine's. At egress
//     a program behind it sees a selected packet once, when it comes back; one that is
//     put before it later sees it twice, and must let our programs' scratch space (cb)
//     be, or it goes round for ever.
//   - At egress a selected packet comes back with its socket, route, mark, priority and
//     segments. A VLAN tag that was beside the data is in it; a super-packet in a tunnel
//     is in segments. A generic XDP program at the other end of a veth skips it, as all
//     that a program has redirected.
//   - An ingress qdisc does not matter to egress.
//   - A clsact that somebody adds later does not matter either, but the next fault takes
//     it: where the flows of the two overlap at egress, a packet meets the first fault
//     before and after the second.
//
// Of the way by clsact:
//
//   - Our filter is put before everybody's. Where a list of another kind has
//     preference 1, it comes behind that, and a verdict there ends a packet's way; Notes
//     says so.
//   - A selected packet skips the filters behind ours. At egress it passes the hook a
//     second time, where the first filter that matches it lets it go without its
//     actions; programs that decide by themselves (direct action, tcx) see it twice.
//   - A hook whose filters are in a block that devices share, and egress beside an
//     ingress qdisc, are refused with a ConflictError.
//
// Everything that an undo needs is in the kernel: the ifb's alias is made first and
// goes last, so Sweep finds what a killed process left. An alias says which way it is,
// and whether the clsact is ours; with several faults on a device the last one takes it
// away, unless something else stands in it by then.
//
// netem cannot end a fault by itself, so the deadline is its caller's to keep.
package netem
