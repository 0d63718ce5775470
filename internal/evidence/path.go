package evidence

import (
	"net/netip"

	"netemd/probe"
)

// Path is how connections from a namespace to an address go.
type Path struct {
	// TCP are the settings that decide their timers.
	TCP probe.NamespaceTCP
	// Source is the address from which they come, Hop the neighbour to which their packets
	// go: the address itself, or a gateway. Both are invalid without a route.
	Source, Hop netip.Addr
}
