package lab

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
)

// congestionControl is what every node's TCP uses, whatever the host's: engines'
// results are compared with it. A child namespace of a host with another default may
// not be given one by sysctl, but a route's option works.
const congestionControl = "cubic"

// settings are the sysctls of a spot, in the order in which they are set, since
// ip_forward resets others. A new namespace inherits some from the host, so all that
// matters is set, and to the kernel's default where there is one. six says whether the lab
// has IPv6.
func (s *spot) settings(six bool) []Sysctl {
	forward := "0"
	if s.forwards() {
		forward = "1"
	}
	all := []Sysctl{
		{"net.ipv4.ip_forward", forward},
		{"net.ipv4.conf.all.rp_filter", "0"},
		{"net.ipv4.conf.default.rp_filter", "0"},
		{"net.ipv4.conf.all.accept_redirects", "0"},
		{"net.ipv4.conf.default.accept_redirects", "0"},
		{"net.ipv4.conf.all.send_redirects", "0"},
		{"net.ipv4.conf.default.send_redirects", "0"},
		// One connection's history must not bend the next one's.
		{"net.ipv4.tcp_no_metrics_save", "1"},
		// min, default and max in bytes, as of a host with 4 GB and more.
		{"net.ipv4.tcp_rmem", "4096\t131072\t6291456"},
		{"net.ipv4.tcp_wmem", "4096\t16384\t4194304"},
		// Each wire counts as a router; 64, the kernel's own, would end a way of 20 links.
		{"net.ipv4.ip_default_ttl", "255"},
		// Nothing may talk unasked.
		{"net.ipv6.conf.default.accept_dad", "0"},
		{"net.ipv6.conf.default.accept_ra", "0"},
		{"net.ipv6.conf.default.autoconf", "0"},
		{"net.ipv6.conf.default.router_solicitations", "0"},
	}
	if s.role == switchRole {
		// The host's firewall for bridges has no business here.
		return append(all,
			Sysctl{"net.bridge.bridge-nf-call-iptables", "0"},
			Sysctl{"net.bridge.bridge-nf-call-ip6tables", "0"},
			Sysctl{"net.bridge.bridge-nf-call-arptables", "0"},
			Sysctl{"net.ipv6.conf.default.disable_ipv6", "1"},
		)
	}
	if !six {
		return append(all, Sysctl{"net.ipv6.conf.default.disable_ipv6", "1"})
	}
	const noLinkLocal = "1" // IN6_ADDR_GEN_MODE_NONE of linux/if_link.h
	return append(all,
		Sysctl{"net.ipv6.conf.default.disable_ipv6", "0"},
		Sysctl{"net.ipv6.conf.default.addr_gen_mode", noLinkLocal},
		Sysctl{"net.ipv6.conf.default.hop_limit", "255"},
		Sysctl{"net.ipv6.conf.all.forwarding", forward},
	)
}

// shown are read and not set: they differ by kernel or host and shape what a client
// sees, as the times of a SYN's retries.
var shown = []string{
	"net.ipv4.tcp_syn_retries", "net.ipv4.tcp_syn_linear_timeouts",
	"net.ipv4.tcp_retries2", "net.ipv4.tcp_early_retrans", "net.ipv4.tcp_recovery",
}

// configure sets the calling thread's namespace and returns what it reads back. What
// this kernel does not have is left out.
func configure(tree *sysctlTree, settings []Sysctl) ([]Sysctl, error) {
	back := make([]Sysctl, 0, len(settings)+len(shown))
	keep := func(name, value string, err error) error {
		if err == nil {
			back = append(back, Sysctl{name, value})
		} else if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	for _, s := range settings {
		value, err := tree.set(s)
		if err := keep(s.Name, value, err); err != nil {
			return nil, err
		}
	}
	for _, name := range shown {
		value, err := tree.read(name)
		if err := keep(name, value, err); err != nil {
			return nil, err
		}
	}
	return back, nil
}

// insist sets what the definition asks for in the calling thread's namespace, all of it or
// an error that says what the kernel did not take.
func insist(tree *sysctlTree, settings []Sysctl) ([]Sysctl, error) {
	var back []Sysctl
	for _, s := range settings {
		value, err := tree.set(s)
		if errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("sysctl %s: this kernel has none of that name in a namespace: %w", s.Name, errors.ErrUnsupported)
		}
		if err != nil {
			return nil, err
		}
		if !sameValue(value, s.Value) {
			return nil, fmt.Errorf("sysctl %s=%s: the kernel made it %s", s.Name, s.Value, value)
		}
		back = append(back, Sysctl{s.Name, value})
	}
	return back, nil
}

// merge puts later settings in the place of earlier ones.
func merge(earlier, later []Sysctl) []Sysctl {
	merged := slices.Clone(earlier)
	for _, s := range later {
		at := slices.IndexFunc(merged, func(o Sysctl) bool { return o.Name == s.Name })
		if at < 0 {
			merged = append(merged, s)
			continue
		}
		merged[at] = s
	}
	return merged
}

// sameValue compares values of several numbers whatever is between them.
func sameValue(a, b string) bool { return slices.Equal(strings.Fields(a), strings.Fields(b)) }
