// Package netem carries packet faults out with the kernel's sch_netem.
//
// It works on devices that netemd made. Each gets a neutral netem root when it is
// made, and a fault only ever changes that root in place, since adding and
// deleting one loses packets. The root impairs everything that leaves the device,
// whatever the flow of the place is. netem cannot end a fault by itself, so the
// deadline is its caller's to keep.
package netem
