// Package lab makes topologies: nodes are network namespaces, links are veth
// pairs that by default pass a node of their own, the wire, and services are
// processes in nodes.
package lab

import (
	"net/netip"
	"time"
)

// Definition is a lab as it is described.
type Definition struct {
	// Name is part of the namespaces' names: netem-<lab>-<node>.
	Name    string
	Nodes   []Node
	Links   []Link
	Targets []TargetDefinition
}

// Node is a namespace with services.
type Node struct {
	Name     string
	Services []ServiceDefinition
}

// ServiceDefinition is a process in a node. Kind is "postgres" or "proxy".
type ServiceDefinition struct {
	Name, Kind string
	Port       uint16
	// Upstream is what a proxy forwards to.
	Upstream netip.AddrPort
}

// Link joins two nodes. Subnet's first address is A's, its second B's.
type Link struct {
	A, B   string
	Subnet netip.Prefix
	// Direct makes one veth pair without a wire between.
	Direct bool
}

// TargetDefinition names a port of a node; Client is the node that its clients
// run in, Proxy the proxy service's port there, 0 without one.
type TargetDefinition struct {
	Name, Node, Client string
	Port, ProxyPort    uint16
}

// Info is a lab that is up.
type Info struct {
	Name    string
	Nodes   []NodeInfo
	Targets []string
	Up      time.Time
}

// NodeInfo is a node that is up.
type NodeInfo struct {
	Name, Namespace string
	Addresses       []netip.Prefix
	Services        []ServiceInfo
	// Sysctls are the settings that shape what a client sees there, as read back.
	Sysctls []Sysctl
}

// Sysctl is one setting of a namespace: "net.ipv4.ip_forward" is "1".
type Sysctl struct{ Name, Value string }

// ServiceInfo is a service that runs.
type ServiceInfo struct {
	Name, Kind string
	PID        int
	Address    netip.AddrPort
	// Log is the path of its log file.
	Log string
}
