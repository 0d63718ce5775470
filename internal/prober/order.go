// Package prober runs probes where their clients live: in a child process inside
// the client's network namespace, while the agent collects what both ends' kernels
// retransmit. Measure puts the two together.
package prober

import (
	"net/netip"
	"time"

	"netemd/probe"
	"netemd/probe/policy"
)

// childName is what the child is registered as.
const childName = "probe"

// Order is what a child is told on its standard input, as one line of JSON.
type Order struct {
	Request probe.Request
	// Address of the server or its proxy, as seen from the client's namespace.
	Address netip.AddrPort
	// User, Password and Database log in. They reach the child by its standard input
	// only, so that no process list shows them.
	User, Password, Database string
	// Policy is the client policy around the calls; nil: none.
	Policy *policy.Policy `json:",omitempty"`

	// Patience is how long beyond its budget a call may last before the child gives up;
	// 0: the default. It is for tests.
	Patience time.Duration `json:",omitempty"`
}
