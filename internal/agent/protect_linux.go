package agent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// Connection is a TCP connection that has an end here.
type Connection struct{ Local, Remote netip.AddrPort }

// String says the connection as a packet to the other end.
func (c Connection) String() string { return c.Local.String() + " -> " + c.Remote.String() }

// at is what the connection's packets look like at a place: those that leave on
// egress, those that arrive on ingress. On a loopback device both pass egress.
func (c Connection) at(p target.Place) target.Match {
	end := func(a netip.AddrPort) netip.Prefix { return netip.PrefixFrom(a.Addr(), a.Addr().BitLen()) }
	const tcp = 6
	m := target.Match{Include: []target.Flow{{
		Protocol: tcp, Source: end(c.Local), SourcePorts: target.Port(c.Local.Port()),
		Destination: end(c.Remote), DestinationPorts: target.Port(c.Remote.Port()),
	}}}
	switch {
	case p.Hook == target.Ingress:
		return m.Reverse()
	case p.Index == loopback:
		m.Include = append(m.Include, m.Reverse().Include...)
	}
	return m
}

// loopback is the index of lo, the first device of every namespace.
const loopback = 1

// guard knows by what one could lock oneself out.
type guard struct {
	// cookie is that of the agent's own network namespace: what happens in others, such
	// as a lab's, cuts nobody off.
	cookie uint64
	// ssh is SSH_CONNECTION of the session that started the agent.
	ssh string
	// controls are the connections by which the agent is controlled; nil for none.
	controls func() []Connection
}

func newGuard(ssh string, controls func() []Connection) (guard, error) {
	own, err := namespaces.Open("")
	if err != nil {
		return guard{}, err
	}
	defer func() { _ = own.Close() }()
	cookie, err := own.Cookie()
	return guard{cookie: cookie, ssh: ssh, controls: controls}, err
}

// protect refuses a fault by which one could lock oneself out, unless it is forced.
// Every impairment counts: a session does not survive a delay of minutes, and at any
// loss the command that clears the fault may not get through. The error says
// everything that would have to be forced.
func (g guard) protect(_ context.Context, s fault.Spec, places []target.Place) error {
	var errs []error
	for _, p := range places {
		if p.Cookie != g.cookie {
			continue
		}
		errs = append(errs, g.session(s, p), g.control(s, p), g.defaultRoute(s, p))
	}
	return errors.Join(errs...)
}

// session protects the ssh sessions that started the agent and the command.
func (g guard) session(s fault.Spec, p target.Place) error {
	if s.Forced(fault.ForceSSH) {
		return nil
	}
	for _, session := range []struct{ text, who string }{
		{s.SSHConnection, "the ssh session of whoever asks for it"}, {g.ssh, "the ssh session that started the agent"},
	} {
		c, err := parseSSH(session.text)
		if err != nil || c == (Connection{}) { // the agent's own may be anything
			continue
		}
		if hits(p, c) {
			return fmt.Errorf("apply: %w: at the %s the fault hits %s (%s): whatever it does to packets, from a delay on, that session can hang until the fault ends, "+
				"and whoever relies on it is locked out and cannot clear the fault; leave the session out with another --port or --direction or with --exclude-port %d, or allow it with --force %s",
				fault.ErrProtected, p, session.who, c, c.Local.Port(), fault.ForceSSH)
		}
	}
	return nil
}

// control protects what the agent is controlled by.
func (g guard) control(s fault.Spec, p target.Place) error {
	if s.Forced(fault.ForceAgent) || g.controls == nil {
		return nil
	}
	for _, c := range g.controls() {
		if hits(p, c) {
			return fmt.Errorf("apply: %w: at the %s the fault hits the connection by which the agent is controlled (%s): whatever it does to packets, from a delay on, "+
				"the agent can become unreachable until the fault ends, and nobody can clear it; leave the connection out with another --port or --direction or with --exclude-port %d, or allow it with --force %s",
				fault.ErrProtected, p, c, c.Local.Port(), fault.ForceAgent)
		}
	}
	return nil
}

// defaultRoute protects the device by which the host is reached.
func (g guard) defaultRoute(s fault.Spec, p target.Place) error {
	if s.Forced(fault.ForceDefaultRoute) || !broad(p.Match) {
		return nil
	}
	carries, err := carriesDefaultRoute(p.Index)
	if err != nil {
		return fmt.Errorf("apply: whether %s carries the default route cannot be told: %w", p.Device, err)
	}
	if !carries {
		return nil
	}
	return fmt.Errorf("apply: %w: the fault hits most packets at the %s, which carries the default route: whatever it does to packets, from a delay on, this host can become "+
		"unreachable until the fault ends, and whoever came by that device is locked out and cannot clear it; say which packets are meant (--dst, --port), or allow it with --force %s",
		fault.ErrProtected, p, fault.ForceDefaultRoute)
}

// What narrows a flow: an address of at least so many bits at one end, or a range of at
// most so many ports. Exclusions narrow nothing: they leave out what one thought of.
const (
	narrowBits  = 8
	narrowPorts = 1024
)

// broad reports whether m selects so much of a device that a host may be reached by
// nothing else: all packets, or all of TCP or UDP, whatever the words are.
func broad(m target.Match) bool {
	return len(m.Include) == 0 || slices.ContainsFunc(m.Include, func(f target.Flow) bool {
		const tcp, udp = 6, 17
		wide := func(p netip.Prefix, ports target.Ports) bool {
			return (!p.IsValid() || p.Bits() < narrowBits) && (ports.Any() || ports.Last-ports.First >= narrowPorts)
		}
		return !narrowed(f) && (f.Protocol == 0 || f.Protocol == tcp || f.Protocol == udp) &&
			wide(f.Source, f.SourcePorts) && wide(f.Destination, f.DestinationPorts)
	})
}

// hits reports whether packets of c are selected at p, as far as can be told.
func hits(p target.Place, c Connection) bool {
	m, ok := without(p.Match, c)
	return ok && m.Overlaps(c.at(p)) && passes(p.Index, c)
}

// parseSSH reads SSH_CONNECTION (ssh(1)): the client's address and port, then the
// server's, which is this end. Empty, and "UNKNOWN" where sshd has no socket, are no
// connection. The error is a *qdisc.FieldError.
func parseSSH(s string) (Connection, error) {
	if s == "" || strings.HasPrefix(s, "UNKNOWN ") {
		return Connection{}, nil
	}
	refused := &qdisc.FieldError{Field: "ssh_connection", Value: s, Want: `"CLIENT-IP PORT SERVER-IP PORT", as sshd sets SSH_CONNECTION`}
	const most = 128
	f := strings.Split(s, " ")
	if len(f) != 4 || len(s) > most {
		return Connection{}, refused
	}
	remote, err := parseEnd(f[0], f[1])
	local, err2 := parseEnd(f[2], f[3])
	if err != nil || err2 != nil {
		return Connection{}, refused
	}
	return Connection{Local: local, Remote: remote}, nil
}

func parseEnd(address, port string) (netip.AddrPort, error) {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return netip.AddrPort{}, err
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil || p == 0 {
		return netip.AddrPort{}, fmt.Errorf("port %q", port)
	}
	return netip.AddrPortFrom(a.Unmap().WithZone(""), uint16(p)), nil
}
