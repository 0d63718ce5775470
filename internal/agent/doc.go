// Package agent is netemd: the gRPC services over the leases, labs, probes and
// features of this machine, on a unix socket, from its start, which clears what a
// killed agent left, to its end, which leaves nothing.
package agent
