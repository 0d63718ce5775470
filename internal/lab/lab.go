// Package lab makes topologies: nodes are network namespaces, links are veth
// pairs that by default pass a node of their own, the wire, switches are nodes with a
// bridge, and services are processes in nodes.
package lab

import (
	"net/netip"
	"time"

	"netemd/internal/target"
	"netemd/qdisc"
)

// Definition is a lab as it is described. It is a value: the same definition under
// another Name is another lab, which may be up beside the first one.
type Definition struct {
	// Name is part of the namespaces' names: netem-<lab>-<node>. 1 to 32 of a-z, 0-9 and
	// '-', not at the ends, as all names of a lab.
	Name string
	// Nodes are in the order of the description, which is the one in which addresses are
	// given and what is shown; so are the others.
	Nodes    []Node             `json:",omitempty"`
	Switches []Switch           `json:",omitempty"`
	Links    []Link             `json:",omitempty"`
	Targets  []TargetDefinition `json:",omitempty"`
}

// Node is a host of the lab: a namespace with services.
type Node struct {
	// Name is unique among nodes and switches. lo, all, default and what begins with
	// "wire" are reserved.
	Name string
	// Forward makes it a router. What lies between others must be one.
	Forward bool `json:",omitempty"`
	// Sysctls are set last, after the lab's own. Only net.* is allowed, and only what a
	// network namespace has of its own.
	Sysctls []Sysctl `json:",omitempty"`
	// Routes are added to the automatic ones, and replace those to the same network.
	Routes   []Route             `json:",omitempty"`
	Services []ServiceDefinition `json:",omitempty"`
}

// Sysctl is one setting of a namespace: "net.ipv4.ip_forward" is "1".
type Sysctl struct{ Name, Value string }

// Route is a route of a node.
type Route struct {
	// To is a network; 0.0.0.0/0 and ::/0 are the default routes.
	To netip.Prefix
	// Via is the name of a node that shares a link or a switch with this one, or an
	// address in one of this node's networks.
	Via string
}

// Switch is a node with a bridge that joins the nodes whose links name it as an end.
type Switch struct {
	Name string
	// Subnet is of IPv4 (or of IPv6, in a lab without IPv4); not valid: one from
	// AutomaticNetwork. Subnet6 is of IPv6; not valid: none. Nodes get its addresses in
	// the order of the links, from the first on.
	Subnet, Subnet6 netip.Prefix
}

// Link joins two nodes, or a node and a switch.
type Link struct {
	// A and B are names of nodes or switches, at most one of them a switch's.
	A, B string
	// Subnet and Subnet6 are as those of a Switch, and not valid where an end is a
	// switch, which has its own.
	Subnet, Subnet6 netip.Prefix
	// AddressA and AddressB are the ends' addresses in Subnet and Subnet6, at most eight
	// each; for a family without one A gets the first address and B the second, on a
	// switch the first that is free. A switch has none.
	AddressA, AddressB []netip.Addr `json:",omitempty"`
	// Direct makes one veth pair without a wire between. Faults then sit at the devices of
	// the ends.
	Direct bool `json:",omitempty"`
	// AB and BA are the base impairments, of what goes from A to B and back; nil: none. They
	// have a wire of their own, so that faults on the link come on top of them.
	AB, BA *qdisc.Netem `json:",omitempty"`
}

// The kinds of services.
const (
	// KindCommand is a program of the user's own.
	KindCommand = "command"
	// KindPostgres is a PostgreSQL with a cluster of its own.
	KindPostgres = "postgres"
	// KindToxiproxy is the embedded Toxiproxy, which the stream layer's faults need.
	KindToxiproxy = "toxiproxy"
	// KindHTTPProxy is a reverse proxy for HTTP, which faults of requests need.
	KindHTTPProxy = "http-proxy"
	// KindEcho answers at a TCP and a UDP port of one number with what it gets, and is the
	// other end of the probes' transfers and numbered packets.
	KindEcho = "echo"
	// KindHTTPEcho and KindGRPCEcho answer with what they were asked.
	KindHTTPEcho = "http-echo"
	KindGRPCEcho = "grpc-echo"
	// KindHTTPTier works at requests and calls upstreams for them, as its settings say.
	KindHTTPTier = "http-tier"
	// KindPayment takes payments over HTTP, with a ledger in the lab's PostgreSQL.
	KindPayment = "payment"
)

// ServiceDefinition is a process in a node.
type ServiceDefinition struct {
	// Name is unique in the lab.
	Name string
	// Kind is one of the kinds above; empty is KindCommand.
	Kind string `json:",omitempty"`
	// Port is what a built-in kind listens on, each once in a node; 0 for a command.
	Port uint16 `json:",omitempty"`
	// Upstream is what a toxiproxy or an http-proxy forwards to: NODE:PORT or ADDRESS:PORT. Of a
	// payment it is the lab's PostgreSQL, or a toxiproxy before it.
	Upstream string `json:",omitempty"`
	// API is the port, at the address of Port, at which a toxiproxy serves Toxiproxy's HTTP API
	// to clients of Toxiproxy; 0: none.
	API uint16 `json:",omitempty"`
	// Settings are what an http-tier does when it starts, as YAML of package settings.
	Settings string `json:",omitempty"`
	// ReplicaOf is the service that a postgres is a streaming standby of; empty: none.
	ReplicaOf string `json:",omitempty"`
	// Command is a program with its arguments; it is not passed to a shell.
	Command []string `json:",omitempty"`
	// User runs it; empty is who asked for the lab. Only root may name another one.
	User string `json:",omitempty"`
	// Directory is its working directory, an absolute path; empty is "/".
	Directory string `json:",omitempty"`
	// Environment are its variables beside the few that every service has: "NAME=value".
	Environment []string `json:",omitempty"`
	// Ready is when it is ready, ReadyTimeout how long that may take; 0 is 30 s, and 3 min
	// for a postgres.
	Ready        Readiness     `json:",omitzero"`
	ReadyTimeout time.Duration `json:",omitempty"`
	// Log is the absolute path of its log, which who asked for the lab must be able to
	// make or to write to; empty is a file in the state folder. 8 MiB are recorded at most.
	Log string `json:",omitempty"`
}

// Readiness is how a command shows that it is ready; at most one is set. The zero value
// asks that the process lives.
type Readiness struct {
	// TCP is a port of the node that takes connections.
	TCP uint16 `json:",omitempty"`
	// HTTP is a URL that answers, inside the node, with a status from 200 to 399.
	HTTP string `json:",omitempty"`
	// Command succeeds, run inside the node as the service's user.
	Command []string `json:",omitempty"`
}

// TargetDefinition gives a name to the traffic of a node.
type TargetDefinition struct {
	// Name is unique in the lab.
	Name string
	// Node is whose traffic it is. Client is the node that its clients run in; it may be
	// empty where Node has one neighbour, itself or by a switch.
	Node   string
	Client string `json:",omitempty"`
	// Protocol is the IP protocol number, 0 any. Ports are those of Node; empty is any. Ports
	// without a Protocol are both TCP's and UDP's.
	Protocol uint8          `json:",omitempty"`
	Ports    []target.Ports `json:",omitempty"`
	// Proxy is the toxiproxy service of Node through which clients may reach it; empty: none.
	Proxy string `json:",omitempty"`
	// HTTPProxy is the http-proxy service of Node through which clients may reach it; empty: none.
	HTTPProxy string `json:",omitempty"`
	// Link is the link on which its faults sit, as "A-B" of the link's two ends in either
	// order; empty is Node's link on the path from Client.
	Link string `json:",omitempty"`
}

// Identity is who asked for a lab, and who its commands run as. The zero value is root.
type Identity struct {
	UID, GID uint32
	// Groups are the supplementary groups.
	Groups []uint32 `json:",omitempty"`
}

// Info is a lab that is up.
type Info struct {
	Name    string
	Nodes   []NodeInfo
	Targets []string
	Up      time.Time
	// By is who asked for it.
	By Identity
	// Held says that it is taken down when nobody holds it any more.
	Held bool
}

// NodeInfo is a node that is up. Wires and switches are among them.
type NodeInfo struct {
	Name, Namespace string
	Addresses       []netip.Prefix
	Services        []ServiceInfo
	// Sysctls are the settings that shape what a client sees there, as read back.
	Sysctls []Sysctl
}

// ServiceInfo is a service that runs.
type ServiceInfo struct {
	Name, Kind string
	PID        int
	Address    netip.AddrPort
	// Log is the path of its log file.
	Log string
	// Ended is when it ended by itself, zero while it lives; Status is how: "exit status 1".
	Ended  time.Time
	Status string
}
