package target

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"netemd/namespaces"
	"netemd/qdisc"
)

// maxEntries bounds each list of a Selector, as MaxFlows does what comes of it.
const maxEntries = MaxFlows

// Validate returns everything that is wrong with s, each as a *qdisc.FieldError
// whose field is the name of netemctl's flag. It asks neither the kernel nor a name
// server.
func (s Selector) Validate() error {
	v := validation{}
	v.device(s.Device)
	if s.Namespace != "" {
		if err := namespaces.CheckReference(s.Namespace); err != nil {
			v.refuse("netns", s.Namespace, namespaces.WantReference)
		}
	}
	v.ends("dst", s.Peers)
	v.ends("src", s.Locals)
	v.ends("exclude-dst", s.ExcludePeers)
	v.ports("port", s.PeerPorts, s.Protocol)
	v.ports("src-port", s.LocalPorts, s.Protocol)
	v.ports("exclude-port", s.ExcludePorts, s.Protocol)
	v.flags(s)
	if s.Cgroup != "" {
		v.cgroup(s)
	}
	if s.Control && (!s.whole() || s.Cgroup != "") {
		v.refuse("control", "", "no flow beside it: ARP and neighbour discovery belong to none, only to a whole device")
	}
	return errors.Join(v.errs...)
}

// cgroup refuses what is no path of a cgroup and no unit, and protocols without sockets that
// packets could be told by.
func (v *validation) cgroup(s Selector) {
	const udp = 17
	d := Definition{Unit: s.Cgroup}
	if strings.HasPrefix(s.Cgroup, "/") {
		d = Definition{Cgroup: s.Cgroup}
	}
	if err := d.Validate(); err != nil {
		v.refuse("cgroup", s.Cgroup, "the path of a cgroup below the root of its hierarchy, such as /system.slice/nginx.service, without '..', or the name of a systemd unit")
	}
	if s.Protocol != 0 && s.Protocol != tcp && s.Protocol != udp {
		v.refuse("protocol", ProtocolName(s.Protocol), "tcp, udp or none beside a cgroup: only of these it is known whose a packet is")
	}
}

// whole reports whether s includes all packets of its device.
func (s Selector) whole() bool {
	return s.Protocol == 0 && s.FlagsSet|s.FlagsClear == 0 && len(s.Peers)+len(s.Locals)+len(s.PeerPorts)+len(s.LocalPorts) == 0
}

type validation struct{ errs []error }

func (v *validation) refuse(field, value, want string) {
	v.errs = append(v.errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
}

// maxDevice is the longest name of a device: an alternative one may have 127 bytes
// (ALTIFNAMSIZ of linux/if.h, with its NUL).
const maxDevice = 127

// device refuses what the kernel never calls a device (dev_valid_name of
// net/core/dev.c), and '@', by which `ip` sets apart what a device is linked to.
func (v *validation) device(name string) { v.deviceAs("dev", name) }

func (v *validation) deviceAs(field, name string) {
	switch {
	case name == "":
		v.refuse(field, "", "the name of a device, such as eth0")
	case strings.Contains(name, "@"):
		v.refuse(field, name, "the device's name alone, what stands before the '@'; a namespace has a field of its own")
	case name == "." || name == ".." || len(name) > maxDevice || strings.ContainsAny(name, "/: \t\n\v\f\r\x00"):
		v.refuse(field, name, fmt.Sprintf("the name of a device: at most %d bytes without '/', ':' and white space", maxDevice))
	}
}

func (v *validation) ends(field string, ends []string) {
	if len(ends) > maxEntries {
		v.refuse(field, "", fmt.Sprintf("at most %d of them, not %d", maxEntries, len(ends)))
		return
	}
	for _, e := range ends {
		if want := badEnd(e); want != "" {
			v.refuse(field, e, want)
		}
	}
}

// badEnd says what is wanted instead of e; empty when e is good.
func badEnd(e string) string {
	p, err := parsePrefix(e)
	switch {
	case err == nil && p.Masked() != p:
		return fmt.Sprintf("a prefix whose host bits are zero, such as %s, or one address, %s", p.Masked(), p.Addr())
	case err == nil && !strings.Contains(e, "/") && p.Addr().IsUnspecified():
		return "an address that packets have; leave it out for any, or say 0.0.0.0/0 or ::/0 for all of one family"
	case err == nil:
		return ""
	case strings.Contains(e, "%"):
		return "an address without a zone: the device says which link is meant"
	case strings.ContainsAny(e, ":/"), !validHost(e):
		return "an address, a prefix such as 192.0.2.0/24 or 2001:db8::/32, or a host name"
	}
	return ""
}

// validHost reports whether s can be a host's name: labels of letters, digits, '-'
// and '_' (RFC 1123, and what name servers hold besides), at most 253 bytes. One
// that ends in a number is an address gone wrong.
func validHost(s string) bool {
	s = strings.TrimSuffix(s, ".")
	labels := strings.Split(s, ".")
	if len(s) > 253 || strings.Trim(labels[len(labels)-1], "0123456789") == "" {
		return false
	}
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
			return false
		}
		for _, r := range l {
			if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_", r) {
				return false
			}
		}
	}
	return true
}

func (v *validation) ports(field string, ports []Ports, protocol uint8) {
	if len(ports) > maxEntries {
		v.refuse(field, "", fmt.Sprintf("at most %d of them, not %d", maxEntries, len(ports)))
		return
	}
	for _, p := range ports {
		if p.First == 0 || p.First > p.Last {
			v.refuse(field, fmt.Sprintf("%d-%d", p.First, p.Last), wantPorts)
		}
	}
	if len(ports) > 0 && protocol != 0 && !hasPorts(protocol) {
		v.refuse(field, portNames(ports)[0], "nothing: "+ProtocolName(protocol)+" has no ports")
	}
}

// family is 4 or 6, 0 for both.
func family(prefixes ...netip.Prefix) (f int, ok bool) {
	for _, p := range prefixes {
		if !p.IsValid() {
			continue
		}
		of := 6
		if p.Addr().Is4() {
			of = 4
		}
		if f != 0 && f != of {
			return 0, false
		}
		f = of
	}
	return f, true
}
