package target

// Selector is a target without a name: a device and the traffic there, said from the
// device's side. Peers are what the traffic goes to in the direction "to" (egress)
// and what it comes from in the direction "from" (ingress; on a loopback device
// egress, too, since every packet passes it once).
type Selector struct {
	// Namespace is a name below /run/netns; empty is the agent's own.
	Namespace string
	Device    string
	// Protocol is the IP protocol number; 0 any.
	Protocol uint8
	// Peers and Locals are the two ends: addresses, prefixes ("192.0.2.0/24") or host
	// names, any of each. A host name stands for all its addresses of both families,
	// and is looked up again while a fault lasts.
	Peers, Locals []string
	// PeerPorts and LocalPorts are the ports of the two ends, any of each.
	PeerPorts, LocalPorts []Ports
	// ExcludePeers are left alone, in the forms of Peers; ExcludePorts are, at either
	// end.
	ExcludePeers []string
	ExcludePorts []Ports
	// Control also takes ARP and neighbour discovery; only for a whole device.
	Control bool
}

// Name is the device, with its namespace if it is not the agent's own: "v0@blue".
func (s Selector) Name() string {
	if s.Namespace == "" {
		return s.Device
	}
	return s.Device + "@" + s.Namespace
}
