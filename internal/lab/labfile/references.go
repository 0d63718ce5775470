package labfile

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"netemd/internal/lab"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// references are the names in the file that nothing in it has, each with those that there
// are.
func (f *file) references() (out []*strictyaml.Mistake) {
	nodes, switches := f.Nodes.Names(), f.Switches.Names()
	ends := append(slices.Clone(nodes), switches...)
	var services, proxies, httpProxies []string
	for _, n := range f.Nodes {
		for _, s := range n.Value.Services {
			services = append(services, s.Name)
			if s.Kind == lab.KindToxiproxy {
				proxies = append(proxies, s.Name)
			}
			if s.Kind == lab.KindHTTPProxy {
				httpProxies = append(httpProxies, s.Name)
			}
		}
	}
	check := func(key, name, what string, known []string) {
		if name != "" && !slices.Contains(known, name) {
			out = append(out, unknown(key, name, what, known))
		}
	}
	for kind, named := range map[string][]string{"nodes": nodes, "switches": switches, "targets": f.Targets.Names()} {
		for _, name := range named {
			if !lab.ValidName(name) {
				out = append(out, &strictyaml.Mistake{Key: strictyaml.Key(kind, name), Value: name, Wrong: strictyaml.NotValid(name), Want: wantName})
			}
		}
	}
	for i, l := range f.Links {
		check(strictyaml.Key("links", i, "a"), l.A, "a node or switch", ends)
		check(strictyaml.Key("links", i, "b"), l.B, "a node or switch", ends)
	}
	for _, n := range f.Nodes {
		for i, r := range n.Value.Routes {
			if _, err := netip.ParseAddr(r.Via); err != nil {
				check(strictyaml.Key("nodes", n.Name, "routes", i, "via"), r.Via, "a node", nodes)
			}
		}
		for i, s := range n.Value.Services {
			key := strictyaml.Key("nodes", n.Name, "services", i)
			if s.Name != "" && !lab.ValidName(s.Name) {
				out = append(out, &strictyaml.Mistake{Key: key + ".name", Value: s.Name, Wrong: strictyaml.NotValid(s.Name), Want: wantName})
			}
			check(key+".replica_of", s.ReplicaOf, "a service", services)
			if host, _, ok := strings.Cut(s.Upstream, ":"); ok {
				if _, err := netip.ParseAddrPort(s.Upstream); err != nil {
					check(key+".upstream", host, "a node", nodes)
				}
			}
		}
	}
	for _, t := range f.Targets {
		key := strictyaml.Key("targets", t.Name)
		check(key+".node", t.Value.Node, "a node", nodes)
		check(key+".client", t.Value.Client, "a node", nodes)
		check(key+".proxy", t.Value.Proxy, "a toxiproxy service", proxies)
		check(key+".http_proxy", t.Value.HTTPProxy, "an http-proxy service", httpProxies)
	}
	return out
}

const wantName = "1 to 32 of a-z, 0-9 and '-', not at the ends"

// maxKnown is how many names are told.
const maxKnown = 12

// unknown says that a name is nobody's, which there are, and which is near.
func unknown(key, name, what string, known []string) *strictyaml.Mistake {
	m := &strictyaml.Mistake{Key: key, Value: name, Wrong: strictyaml.Quote(name) + " is not there", Want: what + " of the lab"}
	if near := strictyaml.Near(name, known); near != "" {
		m.Wrong += fmt.Sprintf(" (did you mean %s?)", near)
	}
	switch {
	case len(known) == 0:
		m.Want += ", which has none"
	default:
		m.Want += ": " + qdisc.First(maxKnown, known)
	}
	return m
}

// keys gives each *qdisc.FieldError of a definition's validation the key of the file: a
// service is in a list there, and a base impairment has keys of its own.
func (f *file) keys(err error) error { return qdisc.Renamed(err, f.key) }

var (
	baseField    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^links\[(\d+)\]\.(a_to_b|b_to_a)(.*)$`) })
	sysctlField  = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^nodes\.([^.]+)\.sysctls\.(.+)$`) })
	serviceField = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^nodes\.([^.]+)\.services\.([^.\[]+)(.*)$`) })
	variableAt   = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^\.environment\[(\d+)\]$`) })
)

// key is the key of a field of lab.Definition.
func (f *file) key(field string) string {
	if field == "name" {
		return "lab"
	}
	if m := baseField().FindStringSubmatch(field); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(f.Links) && f.Links[i].Impairment != nil {
			return strictyaml.Key("links", i, "impairment") + m[3]
		}
	}
	if m := sysctlField().FindStringSubmatch(field); m != nil {
		return strictyaml.Key("nodes", m[1], "sysctls", m[2])
	}
	if m := serviceField().FindStringSubmatch(field); m != nil {
		if n := f.Nodes.Get(m[1]); n != nil {
			i := slices.IndexFunc(n.Services, func(s service) bool { return s.Name == m[2] })
			if i < 0 {
				return field
			}
			rest := m[3]
			if v := variableAt().FindStringSubmatch(rest); v != nil {
				if k, err := strconv.Atoi(v[1]); err == nil && k < len(n.Services[i].Environment) {
					rest = "." + strictyaml.Key("environment", n.Services[i].Environment[k].Name)
				}
			}
			return strictyaml.Key("nodes", m[1], "services", i) + rest
		}
	}
	return field
}
