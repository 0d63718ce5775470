package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"netemd/internal/testbed/settings"
	"netemd/qdisc"
)

// maxReadyTimeout bounds how long a service may take to be ready.
const maxReadyTimeout = time.Hour

// checkServiceNames checks each service by itself.
func (d Definition) checkServiceNames(bad *mistakes) {
	seen := map[string]bool{}
	for _, n := range d.Nodes {
		ports := map[uint16]bool{}
		for _, s := range n.Services {
			path := "nodes." + n.Name + ".services." + s.Name
			bad.name(path, s.Name)
			if seen[s.Name] {
				bad.say(path, s.Name, "is there twice in the lab", "a name of its own")
			}
			seen[s.Name] = true
			if s.Port != 0 && ports[s.Port] {
				bad.say(path+".port", strconv.Itoa(int(s.Port)), "is another service's of the node", "another port")
			}
			ports[s.Port] = true
			if s.API != 0 {
				if ports[s.API] {
					bad.say(path+".api", strconv.Itoa(int(s.API)), "is another service's of the node, or its own", "another port")
				}
				ports[s.API] = true
			}
			if at := s.Ready.TCP; at != 0 && at != s.Port {
				if ports[at] {
					bad.say(path+".ready.tcp", strconv.Itoa(int(at)), "is another service's of the node", "another port")
				}
				ports[at] = true
			}
			s.check(path, bad)
		}
	}
	bad.number("nodes", len(seen), MaxServices, "services")
}

// kind is the service's kind in one form.
func (s ServiceDefinition) kind() string { return cmp.Or(s.Kind, KindCommand) }

// command reports whether the service is a program of the user's own.
func (s ServiceDefinition) command() bool { return s.kind() == KindCommand }

// forwards reports whether the service is a proxy.
func (s ServiceDefinition) forwards() bool { return s.Kind == KindToxiproxy || s.Kind == KindHTTPProxy }

func (s ServiceDefinition) check(path string, bad *mistakes) {
	switch {
	case s.command():
		if len(s.Command) == 0 || s.Command[0] == "" {
			bad.refuse(path+".command", "", "a program with its arguments, such as [./api, --port, \"8080\"], or a kind: "+strings.Join(kinds[1:], ", "))
		}
	case !slices.Contains(kinds, s.Kind):
		bad.refuse(path+".kind", s.Kind, strings.Join(kinds, ", "))
	case s.Port == 0:
		bad.refuse(path+".port", "", "a port from 1 to 65535")
	}
	only := func(field, value string, kind string) {
		if value != "" && s.Kind != kind && (kind != KindCommand || !s.command()) {
			bad.say(path+"."+field, value, "is for services of kind "+kind, "the key left out")
		}
	}
	if s.Upstream != "" && !s.forwards() && s.Kind != KindPayment {
		bad.say(path+".upstream", s.Upstream, "is for services of kind "+KindToxiproxy+", "+KindHTTPProxy+" and "+KindPayment, "the key left out")
	}
	if s.API != 0 {
		only("api", strconv.Itoa(int(s.API)), KindToxiproxy)
	}
	only("settings", s.Settings, KindHTTPTier)
	only("replica_of", s.ReplicaOf, KindPostgres)
	only("command", strings.Join(s.Command, " "), KindCommand)
	only("user", s.User, KindCommand)
	only("directory", s.Directory, KindCommand)
	only("environment", strings.Join(s.Environment, " "), KindCommand)
	only("ready.http", s.Ready.HTTP, KindCommand)
	only("ready.command", strings.Join(s.Ready.Command, " "), KindCommand)
	if s.Ready.TCP != 0 {
		only("ready.tcp", strconv.Itoa(int(s.Ready.TCP)), KindCommand)
	}
	for _, f := range []struct{ field, path string }{{"directory", s.Directory}, {"log", s.Log}} {
		if f.path != "" && !filepath.IsAbs(f.path) {
			bad.refuse(path+"."+f.field, f.path, "an absolute path")
		}
	}
	for _, f := range []struct {
		field string
		words []string
	}{{"command", s.Command}, {"environment", s.Environment}, {"ready.command", s.Ready.Command}, {"directory", []string{s.Directory}}, {"log", []string{s.Log}}} {
		for _, w := range f.words {
			if strings.ContainsRune(w, 0) {
				bad.refuse(path+"."+f.field, w, "a text without a NUL byte")
			}
		}
	}
	for i, e := range s.Environment {
		if name, _, ok := strings.Cut(e, "="); !ok || name == "" {
			bad.refuse(fmt.Sprintf("%s.environment[%d]", path, i), e, "NAME=value")
		}
	}
	s.Ready.check(path+".ready", bad)
	if s.ReadyTimeout < 0 || s.ReadyTimeout > maxReadyTimeout {
		bad.refuse(path+".ready_timeout", s.ReadyTimeout.String(), fmt.Sprintf("up to %v, such as 30s", maxReadyTimeout))
	}
}

func (r Readiness) check(path string, bad *mistakes) {
	ways := 0
	for _, set := range []bool{r.TCP != 0, r.HTTP != "", len(r.Command) > 0} {
		if set {
			ways++
		}
	}
	if ways > 1 {
		bad.refuse(path, "", "one of tcp, http and command")
	}
	if r.HTTP != "" && !strings.HasPrefix(r.HTTP, "http://") && !strings.HasPrefix(r.HTTP, "https://") {
		bad.refuse(path+".http", r.HTTP, "a URL, such as http://127.0.0.1:8080/health")
	}
}

// checkServices checks what depends on the layout: addresses, and services of other nodes.
func (l *layout) checkServices(bad *mistakes) {
	all := map[string]ServiceDefinition{}
	for _, n := range l.definition.Nodes {
		for _, s := range n.Services {
			all[s.Name] = s
		}
	}
	for _, n := range l.definition.Nodes {
		for _, s := range n.Services {
			path := "nodes." + n.Name + ".services." + s.Name
			if _, ok := l.address(n.Name); !ok && !s.command() {
				bad.say(path, s.Kind, "is in node "+n.Name+", which has no link, so no address", "a link of the node")
			}
			if s.forwards() {
				if _, err := l.upstream(s); err != nil {
					bad.inField(path+".upstream", err)
				}
			}
			if s.Settings != "" {
				if _, err := l.settings([]byte(s.Settings)); err != nil {
					bad.inside(path+".settings", err)
				}
			}
			if s.Kind == KindPayment {
				if _, ok := l.database(s); !ok {
					bad.refuse(path+".upstream", s.Upstream, "the NODE:PORT of a postgres of the lab that is no replica, or of a toxiproxy before one, such as db:5432")
				}
			}
			if s.ReplicaOf == "" {
				continue
			}
			if of, ok := all[s.ReplicaOf]; !ok || of.Kind != KindPostgres || of.ReplicaOf != "" {
				bad.refuse(path+".replica_of", s.ReplicaOf, "a service of kind postgres that is no replica itself")
			}
		}
	}
	if len(*bad) == 0 {
		l.definition.checkCircles(bad)
	}
}

// checkCircles refuses services that would wait for one another.
func (d Definition) checkCircles(bad *mistakes) {
	const waits, ready = 1, 2
	all, state := map[string]ServiceDefinition{}, map[string]int{}
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			all[s.Name] = s
		}
	}
	var circle func(name string) bool
	circle = func(name string) bool {
		if state[name] != 0 {
			return state[name] == waits
		}
		state[name] = waits
		if slices.ContainsFunc(d.needs(all[name]), circle) {
			return true
		}
		state[name] = ready
		return false
	}
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			if circle(s.Name) {
				field, value := ".upstream", s.Upstream
				if s.ReplicaOf != "" {
					field, value = ".replica_of", s.ReplicaOf
				}
				bad.refuse("nodes."+n.Name+".services."+s.Name+field, value, "a service that does not wait for this one")
				return
			}
		}
	}
}

// needs are the services that have to be ready before s: what it replicates, and what
// it forwards to.
func (d Definition) needs(s ServiceDefinition) []string {
	var names []string
	if s.ReplicaOf != "" {
		names = append(names, s.ReplicaOf)
	}
	at, port, ok := strings.Cut(s.Upstream, ":")
	if s.Upstream == "" || !ok {
		return names
	}
	for _, n := range d.Nodes {
		for _, o := range n.Services {
			if n.Name == at && o.Port != 0 && strconv.Itoa(int(o.Port)) == port {
				names = append(names, o.Name)
			}
		}
	}
	return names
}

// address returns the node's address on its first link.
func (l *layout) address(node string) (netip.Addr, bool) {
	if all := l.addresses(node); len(all) > 0 {
		return all[0], true
	}
	return netip.Addr{}, false
}

// addresses returns all addresses of the node, in the order of its links, IPv4 first on
// each.
func (l *layout) addresses(node string) []netip.Addr {
	s := l.byName[node]
	if s == nil {
		return nil
	}
	var all []netip.Addr
	for _, d := range s.devices {
		all = append(all, d.addresses...)
	}
	return all
}

// upstream returns the address that a service forwards to, of the node's first link where
// it is said by a node. The error is a *qdisc.FieldError without a field.
func (l *layout) upstream(s ServiceDefinition) (netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(s.Upstream); err == nil && a.Port() != 0 {
		return a, nil
	}
	at, number, ok := strings.Cut(s.Upstream, ":")
	port, err := strconv.ParseUint(number, 10, 16)
	if !ok || err != nil || port == 0 {
		return netip.AddrPort{}, &qdisc.FieldError{Value: s.Upstream, Want: "a node or an address with a port, such as db:5432 or 10.77.0.2:5432"}
	}
	a, ok := l.address(at)
	if !ok {
		return netip.AddrPort{}, &qdisc.FieldError{Value: s.Upstream, Want: "a node of the lab that has a link: " + known(l.hosts())}
	}
	return netip.AddrPortFrom(a, uint16(port)), nil
}

// settings are those of an http-tier with the addresses of its upstreams.
func (l *layout) settings(text []byte) ([]byte, error) {
	return settings.Resolve(text, func(at string) (netip.AddrPort, error) { return l.upstream(ServiceDefinition{Upstream: at}) })
}

// database is the PostgreSQL that a service's upstream is, or leads to through toxiproxies.
func (l *layout) database(s ServiceDefinition) (ServiceDefinition, bool) {
	for range MaxServices {
		to, err := l.upstream(s)
		if err != nil {
			return s, false
		}
		found := false
		for _, n := range l.definition.Nodes {
			for _, o := range n.Services {
				if o.Port == to.Port() && slices.Contains(l.addresses(n.Name), to.Addr()) {
					s, found = o, true
				}
			}
		}
		if !found || s.Kind != KindToxiproxy {
			return s, found && s.Kind == KindPostgres && s.ReplicaOf == ""
		}
	}
	return s, false // a circle of proxies
}

// Address returns the node's address on its first link; false where it has none, and in a
// definition that is not valid.
func (d Definition) Address(node string) (netip.Addr, bool) {
	l, err := d.layout()
	if err != nil {
		return netip.Addr{}, false
	}
	return l.address(node)
}

// Addresses returns all addresses of the node, in the order of its links, IPv4 first on
// each; none in a definition that is not valid.
func (d Definition) Addresses(node string) []netip.Addr {
	l, err := d.layout()
	if err != nil {
		return nil
	}
	return l.addresses(node)
}

// Upstream returns the address that a service forwards to, of the node's first link where
// it is said by a node. The error is a *qdisc.FieldError.
func (d Definition) Upstream(s ServiceDefinition) (netip.AddrPort, error) {
	l, err := d.layout()
	if err != nil {
		return netip.AddrPort{}, err
	}
	return l.upstream(s)
}
