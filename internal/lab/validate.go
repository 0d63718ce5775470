package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"netemd/qdisc"
)

var nameForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`)

var kinds = []string{KindCommand, KindPostgres, KindToxiproxy, KindHTTPEcho, KindGRPCEcho}

const nameWant = "1 to 32 of a-z, 0-9 and '-', not at the ends"

// Validate returns all that is wrong with the definition, each error with the path
// of the field.
func (d Definition) Validate() error {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
	}
	name := func(path, s string) {
		if !nameForm.MatchString(s) {
			bad(path, "%q: want %s", s, nameWant)
		}
	}
	name("name", d.Name)

	seen := map[string]bool{}
	services := map[string]bool{}
	for _, n := range d.Nodes {
		path := "nodes." + n.Name
		name(path, n.Name)
		if seen[n.Name] {
			bad(path, "is there twice")
		}
		seen[n.Name] = true
		// A wire's device bears the name of the node that it faces.
		if n.Name == "lo" || n.Name == "all" || n.Name == "default" || strings.HasPrefix(n.Name, wireNode) {
			bad(path, "the name is reserved: lo, all, default and wire...")
		}
		ports := map[uint16]bool{}
		for _, s := range n.Services {
			path := path + ".services." + s.Name
			name(path, s.Name)
			if services[s.Name] {
				bad(path, "is there twice in the lab")
			}
			services[s.Name] = true
			switch s.Kind {
			case KindPostgres, KindHTTPEcho, KindGRPCEcho, KindCommand, "":
			case KindToxiproxy:
				if _, err := d.Upstream(s); err != nil {
					bad(path+".upstream", "%v", err)
				}
			default:
				bad(path+".kind", "%q: want %s", s.Kind, strings.Join(kinds, ", "))
			}
			if !s.command() && (s.Port == 0 || ports[s.Port]) {
				bad(path+".port", "%d: want 1 to 65535, each once in a node", s.Port)
			}
			ports[s.Port] = true
			if _, ok := d.Address(n.Name); !ok {
				bad(path, "node %s has no link, so no address", n.Name)
			}
		}
	}
	for i, l := range d.Links {
		path := fmt.Sprintf("links[%d]", i)
		for _, node := range []string{l.A, l.B} {
			if !seen[node] {
				bad(path, "no node %q", node)
			}
		}
		if l.A == l.B {
			bad(path, "joins %q with itself", l.A)
		}
		if !l.Subnet.IsValid() || l.Subnet.Addr().BitLen()-l.Subnet.Bits() < 2 || l.Subnet.Addr().Is4In6() {
			bad(path+".subnet", "%v: want a network of at least 4 addresses, such as 10.77.0.0/24", l.Subnet)
			continue
		}
		if slices.ContainsFunc(d.Links[:i], func(o Link) bool { return o.Subnet.IsValid() && o.Subnet.Overlaps(l.Subnet) }) {
			bad(path+".subnet", "%v overlaps with an earlier link's", l.Subnet)
		}
	}
	targets := map[string]bool{}
	for _, t := range d.Targets {
		path := "targets." + t.Name
		name(path, t.Name)
		if targets[t.Name] {
			bad(path, "is there twice")
		}
		targets[t.Name] = true
		if _, _, ok := d.between(t.Client, t.Node); !ok {
			bad(path, "no link between client %q and node %q", t.Client, t.Node)
		}
	}
	return errors.Join(errs...)
}

// Upstream returns the address that a service forwards to, of the node's first link where
// it is said by a node. The error is a *qdisc.FieldError without a field.
func (d Definition) Upstream(s ServiceDefinition) (netip.AddrPort, error) {
	refused := &qdisc.FieldError{Value: s.Upstream, Want: "a node or an address with a port, such as server:5432 or 10.77.0.2:5432"}
	at, number, ok := strings.Cut(s.Upstream, ":")
	if a, err := netip.ParseAddrPort(s.Upstream); err == nil && a.Port() != 0 {
		return a, nil
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil || port == 0 {
		return netip.AddrPort{}, refused
	}
	a, ok := d.Address(at)
	if !ok {
		refused.Want = "a node of the lab that has a link, with a port"
		return netip.AddrPort{}, refused
	}
	return netip.AddrPortFrom(a, uint16(port)), nil
}

// command reports whether the service is a program of the user's own.
func (s ServiceDefinition) command() bool { return s.Kind == "" || s.Kind == KindCommand }

// between returns the first link that joins the two nodes, and its number.
func (d Definition) between(a, b string) (int, Link, bool) {
	for i, l := range d.Links {
		if l.A == a && l.B == b || l.A == b && l.B == a {
			return i, l, true
		}
	}
	return 0, Link{}, false
}

// Address returns the node's address on its first link.
func (d Definition) Address(node string) (netip.Addr, bool) {
	for _, l := range d.Links {
		if l.Subnet.IsValid() && (l.A == node || l.B == node) {
			return l.address(node), true
		}
	}
	return netip.Addr{}, false
}

// address returns the node's address on the link.
func (l Link) address(node string) netip.Addr {
	first := l.Subnet.Masked().Addr().Next()
	if node == l.B {
		return first.Next()
	}
	return first
}

// checkNames checks what a lab's traces are found by: the names of the lab, of its nodes
// and of its services.
func (d Definition) checkNames() error {
	names := []string{d.Name}
	for _, n := range d.Nodes {
		names = append(names, n.Name)
		for _, s := range n.Services {
			names = append(names, s.Name)
		}
	}
	for _, s := range d.Switches {
		names = append(names, s.Name)
	}
	for _, n := range names {
		if !nameForm.MatchString(n) {
			return &qdisc.FieldError{Field: "name", Value: n, Want: nameWant}
		}
	}
	return nil
}
