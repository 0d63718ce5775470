package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

func TestParseSSH(t *testing.T) {
	for in, want := range map[string]string{
		"":                                 "invalid AddrPort -> invalid AddrPort",
		"UNKNOWN 65535 UNKNOWN 65535":      "invalid AddrPort -> invalid AddrPort",
		"192.0.2.1 50000 192.0.2.2 22":     "192.0.2.2:22 -> 192.0.2.1:50000",
		"::ffff:192.0.2.1 1 192.0.2.2 22":  "192.0.2.2:22 -> 192.0.2.1:1",
		"fe80::1%eth0 50000 fe80::2%e 22":  "[fe80::2]:22 -> [fe80::1]:50000",
		"2001:db8::1 65535 2001:db8::2 22": "[2001:db8::2]:22 -> [2001:db8::1]:65535",
	} {
		if got, err := parseSSH(in); err != nil || got.String() != want {
			t.Errorf("%q: %s, %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{
		"192.0.2.1", "192.0.2.1 50000 192.0.2.2", "192.0.2.1 50000 192.0.2.2 22 x", "192.0.2.1 0 192.0.2.2 22", "192.0.2.1 65536 192.0.2.2 22",
		"192.0.2.1  50000 192.0.2.2 22", "host 1 192.0.2.2 22", "192.0.2.1 22-22 192.0.2.2 22", " ", "192.0.2.1 1 192.0.2.2 22\n", strings.Repeat("1", 200) + " 1 192.0.2.2 22",
	} {
		if got, err := parseSSH(in); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%q: %s, %v, want invalid", in, got, err)
		}
	}
}

// inside runs f as the agent of a namespace, which knows v0 and its peers.
func inside(t *testing.T, ns string, f func(guard)) {
	t.Helper()
	n, err := namespaces.Open(ns)
	if err != nil {
		t.Fatal(err)
	}
	cookie, err := n.Cookie()
	if err := errors.Join(err, n.Close()); err != nil {
		t.Fatal(err)
	}
	if err := namespaces.Do(t.Context(), ns, func() error { f(guard{cookie: cookie}); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestProtect(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	err := namespaces.Do(t.Context(), a, func() error {
		lo, err := netlink.LinkByName("lo")
		if err := errors.Join(err, netlink.LinkSetUp(lo), netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "d0"}})); err != nil {
			return err
		}
		v0, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		// A device that stands on v0, with a network of its own.
		upper := &netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: "m0", ParentIndex: v0.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}
		if err := errors.Join(netlink.LinkAdd(upper), netlink.LinkSetUp(upper)); err != nil {
			return err
		}
		address, err := netlink.ParseAddr("10.79.0.1/24")
		if err != nil {
			return err
		}
		return errors.Join(netlink.AddrAdd(upper, address), netlink.RouteAdd(&netlink.Route{LinkIndex: v0.Attrs().Index, Gw: net.IPv4(10, 78, 0, 2)}))
	})
	if err != nil {
		t.Fatal(err)
	}
	const (
		near    = "10.78.0.2 50000 10.78.0.1 22"
		far     = "192.0.2.9 50000 10.78.0.1 22" // by the default route
		onUpper = "10.79.0.2 50000 10.79.0.1 22"
		local   = "10.78.0.1 50000 10.78.0.1 22" // ssh to oneself
		unknown = "198.51.100.1 50000 203.0.113.1 22"
	)
	tcp := func(ports ...uint16) target.Selector {
		s := target.Selector{Protocol: 6}
		for _, p := range ports {
			s.PeerPorts = append(s.PeerPorts, target.Port(p))
		}
		return s
	}
	inside(t, a, func(g guard) {
		for _, tt := range []struct {
			device    string
			selector  target.Selector
			direction fault.Direction
			ssh       string // of the client
			force     string
			want      string // the Force that is asked for; empty for free
		}{
			{"v0", target.Selector{}, fault.To, "", "", "default-route"},
			{"v0", target.Selector{}, fault.From, "", "", "default-route"},
			{"v0", target.Selector{}, fault.To, near, "", "ssh default-route"},
			{"v0", target.Selector{}, fault.To, near, "ssh", "default-route"},
			{"v0", target.Selector{}, fault.To, near, "default-route", "ssh"},
			{"v0", target.Selector{}, fault.To, near, "ssh default-route", ""},
			{"v0", target.Selector{Peers: []string{"0.0.0.0/0"}}, fault.To, "", "", "default-route"},
			{"v0", target.Selector{ExcludePorts: []target.Ports{target.Port(22)}}, fault.Both, near, "", "default-route"},
			{"v0", target.Selector{ExcludePorts: []target.Ports{target.Port(22)}}, fault.Both, near, "default-route", ""},
			{"v0", target.Selector{Peers: []string{"0.0.0.0/1", "128.0.0.0/1"}}, fault.To, "", "", "default-route"},
			{"v0", target.Selector{PeerPorts: []target.Ports{{First: 1, Last: 65535}}}, fault.To, "", "", "default-route"},
			{"v0", target.Selector{PeerPorts: []target.Ports{{First: 8000, Last: 8100}}}, fault.To, "", "", ""},
			{"v0", target.Selector{Protocol: 1}, fault.To, near, "", ""},
			{"v0", target.Selector{ExcludePeers: []string{"10.78.0.2"}}, fault.Both, near, "default-route", ""},
			{"v0", tcp(), fault.To, near, "", "ssh default-route"},
			{"v0", tcp(), fault.From, near, "", "ssh default-route"},
			{"v0", tcp(), fault.Both, far, "default-route", "ssh"},
			{"v0", tcp(), fault.Both, onUpper, "default-route", "ssh"}, // it passes v0, too
			{"m0", tcp(), fault.Both, onUpper, "", "ssh"},
			{"m0", tcp(), fault.Both, near, "", ""},
			{"m0", target.Selector{}, fault.To, "", "", ""},
			{"d0", target.Selector{}, fault.Both, near, "", ""},
			{"d0", target.Selector{}, fault.Both, unknown, "", "ssh"}, // where it passes cannot be told
			{"lo", target.Selector{}, fault.To, near, "", ""},
			{"lo", tcp(22), fault.To, local, "", "ssh"},
			{"lo", tcp(22), fault.From, local, "", "ssh"},
			{"v0", tcp(22), fault.To, near, "", ""},       // packets to a port 22 over there
			{"v0", tcp(50000), fault.To, near, "", "ssh"}, // the session's own answers
			{"v0", tcp(50000), fault.From, near, "", "ssh"},
			{"v0", tcp(443), fault.Both, near, "", ""},
			{"v0", target.Selector{Protocol: 6, LocalPorts: []target.Ports{{First: 20, Last: 25}}}, fault.From, near, "", "ssh"},
			{"v0", target.Selector{Protocol: 17}, fault.Both, near, "", "default-route"},
			{"v0", target.Selector{Peers: []string{"10.78.0.3"}}, fault.Both, near, "", ""},
		} {
			tt.selector.Device = tt.device
			name := fmt.Sprintf("%s %s, ssh %q, force %q", tt.selector, tt.direction, tt.ssh, tt.force)
			tt.selector.Namespace = a
			r, err := target.Resolve(t.Context(), tt.selector, nil)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			places := map[fault.Direction][]target.Place{fault.To: {r.To}, fault.From: {r.From}, fault.Both: {r.To, r.From}}[tt.direction]
			spec := fault.Spec{SSHConnection: tt.ssh, Force: strings.Fields(tt.force)}
			check := func(who string, err error) {
				if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, fault.ErrProtected) || !errors.Is(err, fs.ErrPermission)) {
					t.Errorf("%s: %s: %v, want to be asked for %q", name, who, err, tt.want)
				}
				for _, force := range []string{"ssh", "default-route"} {
					if wanted := strings.Contains(tt.want, force); err != nil && wanted != strings.Contains(err.Error(), "--force "+force) {
						t.Errorf("%s: %s: %v, want to be asked for %q", name, who, err, tt.want)
					}
				}
			}
			check("the client's session", g.protect(t.Context(), spec, places))
			spec.SSHConnection, g.ssh = "", tt.ssh
			check("the agent's session", g.protect(t.Context(), spec, places))
			g.ssh = ""
			for i := range places { // what is in another namespace cuts nobody off
				places[i].Cookie++
			}
			if err := g.protect(t.Context(), fault.Spec{SSHConnection: tt.ssh}, places); err != nil {
				t.Errorf("%s: in another namespace: %v", name, err)
			}
		}
	})
}

func TestProtectControl(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	inside(t, a, func(g guard) {
		g.controls = func() []Connection {
			return []Connection{{Local: netip.MustParseAddrPort("10.78.0.1:7070"), Remote: netip.MustParseAddrPort("10.78.0.2:40000")}}
		}
		link, err := netlink.LinkByName("v0")
		if err != nil {
			t.Error(err)
			return
		}
		p := target.Place{Device: "v0", Index: link.Attrs().Index, Cookie: g.cookie, Hook: target.Ingress}
		err = g.protect(t.Context(), fault.Spec{}, []target.Place{p})
		for _, want := range []string{"--force agent", "10.78.0.1:7070 -> 10.78.0.2:40000", "ingress of v0 in the agent's namespace", "--exclude-port 7070", "nobody can clear it"} {
			if !errors.Is(err, fault.ErrProtected) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		}
		if err := g.protect(t.Context(), fault.Spec{Force: []string{fault.ForceAgent}}, []target.Place{p}); err != nil {
			t.Errorf("forced: %v", err)
		}
		p.Match.Exclude = []target.Flow{{DestinationPorts: target.Port(7070)}}
		if err := g.protect(t.Context(), fault.Spec{}, []target.Place{p}); err != nil {
			t.Errorf("without its port: %v", err)
		}
	})
}

func TestAbove(t *testing.T) {
	attrs := func(index, parent, master int) netlink.LinkAttrs {
		return netlink.LinkAttrs{Index: index, ParentIndex: parent, MasterIndex: master}
	}
	links := []netlink.Link{
		&netlink.Device{LinkAttrs: attrs(1, 0, 5)}, &netlink.Device{LinkAttrs: attrs(2, 0, 5)}, &netlink.Bond{LinkAttrs: attrs(5, 0, 6)},
		&netlink.Bridge{LinkAttrs: attrs(6, 0, 0)}, &netlink.Vlan{LinkAttrs: attrs(7, 6, 0)}, &netlink.Veth{LinkAttrs: attrs(8, 7, 0)}, &netlink.Device{LinkAttrs: attrs(9, 0, 0)},
	}
	for index, want := range map[int]string{1: "[1 5 6 7]", 6: "[6 7]", 7: "[7]", 8: "[8]", 9: "[9]"} {
		if got := fmt.Sprint(above(links, index)); got != want {
			t.Errorf("above %d: %s, want %s", index, got, want)
		}
	}
}
