// Package target says where packets of a named thing pass: a name becomes a
// namespace, a device, a hook and a flow.
package target

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"netemd/qdisc"
)

// ErrUnknown is returned, wrapped with the known names, for a name that no
// target has.
var ErrUnknown = errors.New("unknown target")

// ErrVanished is returned, wrapped, where what a target stands for is not there any more.
var ErrVanished = errors.New("target has vanished")

// NotThereError is a well-formed name of a device or a namespace that does not exist. It is
// bad input where somebody has just written it, and a target that has vanished where it
// stands for one that was there.
type NotThereError struct{ *qdisc.FieldError }

// Unwrap returns the field's error.
func (e *NotThereError) Unwrap() error { return e.FieldError }

// Target is what a user calls by name.
type Target struct {
	// Name is unique in one agent: "pg".
	Name string
	// Definition is what it stands for where a definition says so; the zero value of a lab's,
	// and of one that a Selector says.
	Definition Definition
	// Origin is where it comes from; empty for a Selector's.
	Origin Origin
	// Moves says that To and From may become others while the target stands, as where a host's
	// name or the way to it changes: they are to be looked for again while a fault lasts.
	Moves bool
	// Missing is why it is nowhere now, of one that is listed; To and From are zero then.
	Missing string
	// Engines say what each engine would do at the places, where that was asked for.
	Engines []EnginePlacement
	// Lab and Node say which lab's node carries it.
	Lab, Node string
	// Address is where clients reach it, protocol TCP.
	Address netip.AddrPort
	// Proxy is where clients reach it through the stream layer's proxy; not valid
	// when there is none.
	Proxy netip.AddrPort
	// HTTPProxy is where clients reach it through its http-proxy, which application faults act
	// on; not valid when there is none.
	HTTPProxy netip.AddrPort
	// Toxiproxy is the proxy that it stands for, of somebody else's Toxiproxy; nil for any
	// other. It has no places then.
	Toxiproxy *Toxiproxy
	// ClientNamespace is the named namespace in which its clients, such as probes,
	// run; ServerNamespace is the one in which it listens.
	ClientNamespace, ServerNamespace string
	// Process is the one by which it was found; the zero value where none led to it.
	Process Process
	// To is where packets to the target pass, From where those from it pass.
	To, From Place
}

// Process is one by which a target was found, so that its end is seen also where its network
// namespace and devices outlive it.
type Process struct {
	// PID is its number, Started when it began, in clock ticks since the boot.
	PID     int
	Started uint64
	// Container is the id of the container that it is of; empty for none. Another process of
	// that stands for it, as long as it is in the network namespace with the Cookie.
	Container string
	Cookie    uint64
}

// Key is the one name of a target among all, by which faults are kept and rules of access
// go: LAB/TARGET, but just the name of one that is called as its lab, and of one that no lab
// has.
func (t Target) Key() string {
	if t.Lab == "" || t.Lab == t.Name {
		return t.Name
	}
	return t.Lab + "/" + t.Name
}

// EnginePlacement is what an engine would do at a target's places, in words, one for each
// direction.
type EnginePlacement struct {
	Engine   string
	To, From string
	// Unavailable is why this machine's kernel cannot carry it; To and From are empty then.
	Unavailable string
}

// Hook is the side of a device on which packets are caught.
type Hook string

// The hooks of a device.
const (
	Egress  Hook = "egress"
	Ingress Hook = "ingress"
)

// Place is one device and direction, and the packets there that are meant.
type Place struct {
	// Namespace is the name below /run/netns; empty is the agent's own.
	Namespace string
	// Device is the interface's name, for people; Index is what is used. Index is 0
	// while the device does not exist yet (dry run).
	Device string
	Index  int
	// Cookie is SO_NETNS_COOKIE of the namespace, 0 while unknown (dry run): with it
	// an undo never touches a namespace that was made anew.
	Cookie uint64
	Hook   Hook
	// Owned says that netemd made the device, so that its root qdisc is ours.
	Owned bool
	Match Match
}

// Key is the same for two places if and only if they are the same device, hook and
// packets.
func (p Place) Key() string {
	return p.Namespace + "|" + strconv.FormatUint(p.Cookie, 10) + "|" + strconv.Itoa(p.Index) + "|" + string(p.Hook) + "|" + p.Match.Key()
}

// String says the place in one phrase: "egress of server in netem-pg-wire".
func (p Place) String() string {
	ns := p.Namespace
	if ns == "" {
		ns = "the agent's namespace"
	}
	return fmt.Sprintf("%s of %s in %s", p.Hook, p.Device, ns)
}
