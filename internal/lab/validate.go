package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"netemd/internal/target"
	"netemd/qdisc"
)

// What one lab may have. A namespace takes about 200 KB of the kernel's memory and a
// millisecond to make; each pair of nodes at one switch is two neighbours at least.
const (
	MaxNodes       = 2000 // nodes and switches
	MaxLinks       = 4000
	MaxAtSwitch    = 256
	MaxServices    = 200
	MaxTargets     = 1000
	maxAddresses   = 8
	maxSysctls     = 64
	maxRoutes      = 256
	maxSysctlValue = 256
)

var (
	nameForm   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`) })
	sysctlForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^net(\.[A-Za-z0-9_-]+)+$`) })
)

const nameWant = "1 to 32 of a-z, 0-9 and '-', not at the ends"

var kinds = []string{KindCommand, KindPostgres, KindToxiproxy, KindHTTPProxy, KindEcho, KindHTTPEcho, KindGRPCEcho, KindPayment, KindHTTPTier}

// Validate returns all that is wrong with the definition, as *qdisc.FieldErrors joined with
// errors.Join. Their fields are paths in the words of a lab's file:
// nodes.web.services.api.port, nodes.web.routes[0].via, nodes.web.sysctls.net.core.somaxconn,
// switches.lan.subnet, links[2].address_a, targets.pg.client. What depends on something that
// is wrong itself may be told only after that was put right.
func (d Definition) Validate() error {
	_, err := d.layout()
	return err
}

// layout lays out a definition that is right.
func (d Definition) layout() (*layout, error) {
	var bad mistakes
	d.checkForm(&bad)
	if err := bad.err(); err != nil {
		return nil, err
	}
	l := newLayout(d, &bad)
	if err := bad.err(); err != nil {
		return nil, err
	}
	l.checkServices(&bad)
	for _, t := range d.Targets {
		if _, err := l.target(t); err != nil {
			bad = append(bad, err)
		}
	}
	return l, bad.err()
}

// checkForm checks names, references and single values.
func (d Definition) checkForm(bad *mistakes) {
	bad.name("name", d.Name)
	bad.number("nodes", len(d.Nodes)+len(d.Switches), MaxNodes, "nodes and switches")
	bad.number("links", len(d.Links), MaxLinks, "links")
	bad.number("targets", len(d.Targets), MaxTargets, "targets")
	seen := map[string]bool{}
	for _, n := range d.Nodes {
		bad.spotName("nodes."+n.Name, n.Name, seen)
		n.checkForm(bad)
	}
	switches := map[string]bool{}
	for _, s := range d.Switches {
		bad.spotName("switches."+s.Name, s.Name, seen)
		switches[s.Name] = true
	}
	d.checkLinks(bad, seen, switches)
	d.checkServiceNames(bad)
	targets := map[string]bool{}
	for _, t := range d.Targets {
		path := "targets." + t.Name
		bad.name(path, t.Name)
		if targets[t.Name] {
			bad.say(path, t.Name, "is there twice", "a name of its own")
		}
		targets[t.Name] = true
	}
}

func (m *mistakes) name(path, name string) {
	if !nameForm().MatchString(name) {
		m.refuse(path, name, nameWant)
	}
}

func (m *mistakes) number(path string, n, most int, what string) {
	if n > most {
		m.refuse(path, strconv.Itoa(n), fmt.Sprintf("at most %d %s", most, what))
	}
}

func (m *mistakes) spotName(path, name string, seen map[string]bool) {
	m.name(path, name)
	if seen[name] {
		m.say(path, name, "is there twice", "a name of its own")
	}
	seen[name] = true
	// The devices of wires and switches bear the names of nodes; net.ipv4.conf has all and
	// default.
	if slices.Contains([]string{"lo", "all", "default", bridgeDevice}, name) || strings.HasPrefix(name, wireNode) {
		m.refuse(path, name, "another name: lo, all, default, bridge and wire... are reserved")
	}
}

// checkForm checks what is in one node.
func (n Node) checkForm(bad *mistakes) {
	path := "nodes." + n.Name
	bad.number(path+".sysctls", len(n.Sysctls), maxSysctls, "sysctls")
	bad.number(path+".routes", len(n.Routes), maxRoutes, "routes")
	names := map[string]bool{}
	for _, s := range n.Sysctls {
		field := path + ".sysctls." + s.Name
		if !sysctlForm().MatchString(s.Name) {
			bad.refuse(field, s.Name, "a name that begins with net., such as net.ipv4.tcp_syn_retries")
		}
		if names[s.Name] {
			bad.say(field, s.Name, "is there twice", "a name of its own")
		}
		names[s.Name] = true
		if s.Value == "" || len(s.Value) > maxSysctlValue || strings.ContainsFunc(s.Value, func(r rune) bool { return r < ' ' && r != '\t' }) {
			bad.refuse(field, s.Value, fmt.Sprintf("1 to %d characters in one line", maxSysctlValue))
		}
	}
	nets := map[netip.Prefix]bool{}
	for i, r := range n.Routes {
		field := fmt.Sprintf("%s.routes[%d]", path, i)
		switch {
		case !r.To.IsValid() || r.To.Addr().Is4In6():
			bad.refuse(field+".to", "", "a network, such as 10.9.0.0/16, or default")
		case r.To != r.To.Masked():
			bad.refuse(field+".to", r.To.String(), "a network's own address, such as "+r.To.Masked().String())
		case nets[r.To]:
			bad.say(field+".to", r.To.String(), "is there twice", "one route to each network")
		}
		nets[r.To] = true
	}
}

func (d Definition) checkLinks(bad *mistakes, nodes, switches map[string]bool) {
	ports := map[string]int{}
	plugged := map[[2]string]bool{}
	for i, l := range d.Links {
		path := linkPath(i)
		for _, e := range []struct{ field, name string }{{".a", l.A}, {".b", l.B}} {
			if !nodes[e.name] {
				bad.refuse(path+e.field, e.name, "a node or a switch of the lab: "+known(nodes))
			}
		}
		if l.A == l.B {
			bad.refuse(path+".b", l.B, "another node than that of a")
		}
		for _, n := range []struct {
			field string
			netem *qdisc.Netem
		}{{".a_to_b", l.AB}, {".b_to_a", l.BA}} {
			if n.netem != nil {
				bad.inside(path+n.field, n.netem.Validate())
			}
		}
		sw, node := l.A, l.B
		addresses, field := l.AddressA, ".address_a"
		if switches[l.B] {
			sw, node = l.B, l.A
			addresses, field = l.AddressB, ".address_b"
		}
		if !switches[sw] {
			continue
		}
		if switches[node] {
			bad.refuse(path+".b", l.B, "a node: two switches are joined by a node that forwards")
			continue
		}
		if l.Subnet.IsValid() || l.Subnet6.IsValid() {
			bad.say(path+".subnet", l.Subnet.String(), "is not the link's, which is in the network of switch "+sw, "the key left out, or the subnet of the switch")
		}
		if len(addresses) > 0 {
			bad.say(path+field, addresses[0].String(), "is of a switch, which has no address", "the key left out")
		}
		if plugged[[2]string{sw, node}] {
			bad.say(path, l.A+"-"+l.B, "is there twice", "one link of a node and a switch")
		}
		plugged[[2]string{sw, node}] = true
		if ports[sw]++; ports[sw] == MaxAtSwitch+1 {
			bad.say(path, sw, "has too many links", fmt.Sprintf("at most %d at one switch", MaxAtSwitch))
		}
	}
}

// known lists names for an error, as far as one reads them.
func known(names map[string]bool) string {
	const most = 12
	var all []string
	for n := range names {
		all = append(all, n)
	}
	slices.Sort(all)
	if len(all) > most {
		return strings.Join(all[:most], ", ") + ", ..."
	}
	return strings.Join(all, ", ")
}

// inside adds another validation's errors, below a path.
func (m *mistakes) inside(path string, err error) {
	if err == nil {
		return
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // what errors.Join returned, not deeper in a chain
	if !ok {
		m.inField(path, err)
		return
	}
	for _, e := range joined.Unwrap() {
		m.inField(path, e)
	}
}

func (m *mistakes) inField(path string, err error) {
	fe, ok := errors.AsType[*qdisc.FieldError](err)
	if !ok {
		fe = &qdisc.FieldError{Why: err.Error()}
	}
	below := *fe
	if below.Field = path; fe.Field != "" {
		below.Field = path + "." + fe.Field
	}
	*m = append(*m, &below)
}

// checkNames checks what a lab's traces are found by: the names of the lab, of its nodes
// and of its services.
func (d Definition) checkNames() error {
	var bad mistakes
	bad.name("name", d.Name)
	for _, n := range d.Nodes {
		bad.name("nodes."+n.Name, n.Name)
		for _, s := range n.Services {
			bad.name("nodes."+n.Name+".services."+s.Name, s.Name)
		}
	}
	return bad.err()
}

// portsText is "5432 or 8000-8100" for an error.
func portsText(ports []target.Ports) string {
	all := make([]string, len(ports))
	for i, p := range ports {
		all[i] = p.String()
	}
	return strings.Join(all, ", ")
}
