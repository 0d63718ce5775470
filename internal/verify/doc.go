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
// Delays run from the moment at which a packet is handed to the kernel to the kernel's
// stamp at the capture, so they include the way there; nothing is taken off for it. A
// packet that is earlier than asked is therefore a failure without any tolerance but
// the clock's, and one that is later is weighed against how late this process itself
// was meanwhile.
//
// Shares are bounded exactly (Clopper and Pearson), with dependent losses counted as
// the fewer independent ones that they are worth; quantiles by order statistics, and a
// jitter's whole distribution by the bound of Dvoretzky, Kiefer and Wolfowitz. A place
// that does what was asked passes at 99.9 %, over all its checks together. Where too
// few packets were sent for that, the check is inconclusive and says how many would do.
//
// A service that carries little traffic is still hit by the fault itself, of course:
// the packets fill the same queue, and a Rate is shared. Where others pass meanwhile, a
// rate, a burst or a share of reordering that is not as asked is therefore inconclusive.
package verify
