// Package probe measures what a real client sees: samples with the phases of
// each call, errors by class, percentiles, and the cause of every slow call.
//
// It is pure but for the probes themselves, which open sockets in the namespace
// of the process that runs them. What the kernel retransmitted is handed in as
// Retransmission records; nothing here needs a privilege.
package probe
