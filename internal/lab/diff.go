package lab

import (
	"fmt"
	"net/netip"
	"strings"
)

// Difference is one thing of a lab that is not as it should be.
type Difference struct {
	// Path says what, in the words of a lab's file: nodes.web.sysctls.net.core.somaxconn,
	// links[2].a_to_b.
	Path string
	// Want and Have are texts for people; one of them is empty for what is there on one side
	// only.
	Want, Have string
}

// part is one thing of a definition in one text.
type part struct{ path, text string }

// parts is a definition in texts that can be compared.
func (d Definition) parts() []part {
	var all []part
	for _, n := range d.Nodes {
		all = append(all, part{"nodes." + n.Name, nodeText(n)})
		for _, s := range n.Services {
			all = append(all, part{"nodes." + n.Name + ".services." + s.Name, serviceText(s)})
		}
	}
	for _, s := range d.Switches {
		text := prefixText(s.Subnet)
		if s.Subnet6.IsValid() {
			text += ", " + s.Subnet6.String()
		}
		all = append(all, part{"switches." + s.Name, text})
	}
	for i, l := range d.Links {
		all = append(all, part{linkPath(i), linkText(l)})
	}
	for _, t := range d.Targets {
		all = append(all, part{"targets." + t.Name, targetText(t)})
	}
	return all
}

// differ compares two definitions.
func (d Definition) differ(have Definition) []Difference {
	texts := map[string]string{}
	for _, p := range have.parts() {
		texts[p.path] = p.text
	}
	var all []Difference
	for _, p := range d.parts() {
		if texts[p.path] != p.text {
			all = append(all, Difference{p.path, p.text, texts[p.path]})
		}
		delete(texts, p.path)
	}
	for _, p := range have.parts() {
		if _, left := texts[p.path]; left {
			all = append(all, Difference{p.path, "", p.text})
		}
	}
	return all
}

// nodeText is a node without its services.
func nodeText(n Node) string {
	words := []string{"forward " + fmt.Sprint(n.Forward)}
	for _, s := range n.Sysctls {
		words = append(words, s.Name+"="+s.Value)
	}
	for _, r := range n.Routes {
		words = append(words, fmt.Sprintf("%v via %s", r.To, r.Via))
	}
	return strings.Join(words, ", ")
}

func serviceText(s ServiceDefinition) string {
	kind := s.Kind
	if s.command() {
		kind = KindCommand
	}
	words := []string{kind}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+" "+value)
		}
	}
	if s.Port != 0 {
		add("port", fmt.Sprint(s.Port))
	}
	add("upstream", s.Upstream)
	if s.API != 0 {
		add("api", fmt.Sprint(s.API))
	}
	add("settings", s.Settings)
	add("replica of", s.ReplicaOf)
	add("command", strings.Join(s.Command, " "))
	add("user", s.User)
	add("directory", s.Directory)
	add("environment", strings.Join(s.Environment, " "))
	if s.Ready.TCP != 0 {
		add("ready tcp", fmt.Sprint(s.Ready.TCP))
	}
	add("ready http", s.Ready.HTTP)
	add("ready command", strings.Join(s.Ready.Command, " "))
	if s.ReadyTimeout != 0 {
		add("within", s.ReadyTimeout.String())
	}
	add("log", s.Log)
	return strings.Join(words, ", ")
}

func linkText(l Link) string {
	words := []string{l.A + "-" + l.B}
	for _, p := range []netip.Prefix{l.Subnet, l.Subnet6} {
		if p.IsValid() {
			words = append(words, p.String())
		}
	}
	for _, a := range l.AddressA {
		words = append(words, l.A+" "+a.String())
	}
	for _, b := range l.AddressB {
		words = append(words, l.B+" "+b.String())
	}
	if l.Direct {
		words = append(words, "without a wire")
	}
	if l.AB != nil {
		words = append(words, l.A+" to "+l.B+" "+l.AB.String())
	}
	if l.BA != nil {
		words = append(words, l.B+" to "+l.A+" "+l.BA.String())
	}
	return strings.Join(words, ", ")
}

func targetText(t TargetDefinition) string {
	words := []string{"node " + t.Node}
	add := func(name, value string) {
		if value != "" {
			words = append(words, name+" "+value)
		}
	}
	add("client", t.Client)
	if t.Protocol != 0 {
		add("protocol", fmt.Sprint(t.Protocol))
	}
	add("port", portsText(t.Ports))
	add("proxy", t.Proxy)
	add("http_proxy", t.HTTPProxy)
	add("link", t.Link)
	return strings.Join(words, ", ")
}

// prefixText is a network, or that it is automatic.
func prefixText(p netip.Prefix) string {
	if !p.IsValid() {
		return "an automatic network"
	}
	return p.String()
}
