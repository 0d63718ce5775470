// Package verify sends numbered packets through a fault and compares what was asked
// for with what arrives.
//
// It has two halves. The judge takes what was asked, sent and received, and says
// what each number should have been, what it was, between which bounds it lies at a
// stated level, and pass, fail or inconclusive; it does no input or output. Run does
// the rest, on Linux: it makes packets that belong to the fault's flow, sends them on
// an absolute schedule, and captures them behind the fault with the kernel's own
// timestamps.
//
// The packets disturb no service. Their transport checksum is wrong on purpose, so
// that the receiving host's TCP or UDP discards them without an answer; their IP
// header is right, so that every hop passes them on. They are sent from raw sockets,
// not by a stack that would expect answers. A verdict counts only these packets,
// whatever else passes the fault.
//
// A service that carries little traffic is still hit by the fault itself, of course:
// the packets fill the same queue, and a Rate is shared.
package verify
