// Package qdisc is the impairment model: what may happen to packets, in typed
// units, with the meaning that the Linux kernel's sch_netem gives it, the
// kernel's encoding of it, and tc's words for it.
//
// The model is pure and works on every operating system. What talks to the
// kernel over rtnetlink stands in files that end in _linux.go and needs
// CAP_NET_ADMIN in the network namespace that it changes.
package qdisc
