// Package ebpf impairs packets on kernels without sch_netem, on devices of any
// owner: a program of ours at the head of a device's tcx hook matches a flow and
// then drops (drop mode), or hands packets to a queue of ours (queue mode).
//
// Drop mode carries what only loses packets, in the kernel alone. A lost packet
// is redirected to a device that does not exist, so that the sender's stack takes
// it for a loss on the way; a drop verdict would be reported to TCP.
//
// Queue mode carries everything else. The program redirects packets to a TAP of
// ours; a thread of this process applies the model (package model) and sends the
// survivors to the device through a packet socket, whose packets the program
// knows by the socket's cookie. They pass the device's own qdisc as before; their
// mark, priority and departure time are lost on the way. On ingress the survivors
// go back through the TAP. Super-packets of TCP come whole; where the model counts
// packets it sees their segments, and segments that leave together stay together. IPv4
// on a loopback device leaves through a raw socket, since it needs its route: it passes
// netfilter's OUTPUT and POSTROUTING twice. TCP and UDP that netfilter translates leave as
// they were before, as conntrack tells, and are translated again; other protocols, later
// fragments and flows in a conntrack zone leave as they came, and may be cut off. A
// loopback device's ingress has drop mode alone.
//
// The thread runs under SCHED_FIFO where it may. It is woken by the first packet and
// shortly before one is due, by what wake-ups are late, and runs towards the due time
// for at most a fifth of its time. What waits is bounded in packets by the model's limit
// and in bytes by maxQueued, besides what the TAP holds.
//
// Beside others. A queue's packets go through the whole hook once more. On tcx a
// program of ours is put back to the head when somebody has come to stand before it,
// as Read finds out, so that programs of others see each packet once; on clsact a
// filter that was added later with the same priority stands before ours and sees them
// twice. A sniffer on the device sees each packet once on the way out; on the way in,
// where packet sockets stand before the hook, it sees a queue's packet as it comes and
// again as it is let in.
//
// A content rule acts on chosen packets (package content). It is a place of its own,
// with a program of its own: what was set last comes first, and the next one sees what
// it let pass. The program reads the headers, follows each connection's sequence numbers
// in an LRU map of its own, draws a turn where a count bounds the rule (Linux 5.12), and
// writes a record of each chosen packet to a BPF ring buffer, which a sleeping goroutine
// empties. What it counts it counts without this process, too; only acting
// needs the heartbeat.
//
// Fail open. A program passes everything when this process has not written its
// heartbeat for 50 ms, or when the fault's deadline is past. A stopped or killed
// process costs 50 ms of traffic, and a deadline holds without a process.
//
// A place of ours is armed at its first Set and stays so until Close, one of others until
// Clear, since attaching is slow: everything after the first Set is a write to a mapped page. While it has a
// queue, its network namespace is pinned by the TAP; Read and Set look whether the
// namespace's name still stands, and let go of it otherwise. Besides, namespaces are held
// open between calls as namespaces.Session does.
//
// Below Linux 6.6, which has no tcx, programs hang on clsact with cls_bpf. Those
// outlive a killed process, open by then; Sweep removes them. Adding clsact to a
// device, and deleting it, stops the device for a moment and loses what is sent then
// (qdisc_graft in net/sched/sch_api.c deactivates it; seen: 2 to 10 packets at 1000
// packets in 100 ms). Where a clsact is there already, and on tcx, arming loses
// nothing.
//
// Everything here needs CAP_NET_ADMIN, CAP_BPF and, for another namespace,
// CAP_SYS_ADMIN.
package ebpf
