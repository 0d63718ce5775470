// Package evidence watches what kernels send again, so that a slow call can be
// told from a lost packet. A Collector traces every retransmission of chosen
// network namespaces as it happens; Counters reads the namespaces' own totals,
// which agree with it and stand in for it where it cannot run.
//
// Tracing needs BTF of the running kernel (CONFIG_DEBUG_INFO_BTF), Linux 5.15 or
// later, and CAP_BPF with CAP_PERFMON, or root. Nothing in a namespace is changed.
package evidence
