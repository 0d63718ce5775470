// Package prober runs probes where their clients live: in a child process inside
// the client's network namespace, while the agent collects what both ends' kernels
// retransmit. Measure puts the two together.
package prober

import (
	"encoding/json"
	"net/netip"

	"netemd/probe"
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
	// Policy is the client policy around the calls, as the JSON of its plain types; empty:
	// none.
	Policy json.RawMessage `json:",omitempty"`
}

// message is one line of a child's standard output: a sample, or the end.
type message struct {
	Done   int           `json:"done"`
	Count  int           `json:"count"`
	Sample *probe.Sample `json:"sample,omitempty"`
	// End is the last message. Error is why there are fewer samples than ordered.
	End   bool   `json:"end,omitempty"`
	Error string `json:"error,omitempty"`
}
