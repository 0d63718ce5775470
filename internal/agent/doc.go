// Package agent is netemd: the gRPC services over the leases, labs, probes and
// features of this machine, on a unix socket and, where it is configured, on TCP, from its
// start, which clears what a killed agent left, to its end, which leaves nothing.
package agent
