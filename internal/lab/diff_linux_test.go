package lab

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/namespaces"
	"netemd/qdisc"
)

// TestDiff damages a lab in each way, and finds just that.
func TestDiff(t *testing.T) {
	d := campus(t)
	d.Nodes[4].Sysctls = append(d.Nodes[4].Sysctls, Sysctl{"net.ipv4.tcp_keepalive_time", "77"})
	m := newManager(t, t.TempDir())
	var base impairer
	m.cfg.Engine = &base
	if _, err := m.Diff(t.Context(), d); !errors.Is(err, ErrUnknown) {
		t.Errorf("of a lab that is not up: %v", err)
	}
	if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	look := func(d Definition) []string {
		t.Helper()
		found, err := m.Diff(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		texts := []string{}
		for _, f := range found {
			texts = append(texts, f.Path+": want "+f.Want+", have "+f.Have)
		}
		return texts
	}
	if got := look(d); len(got) != 0 {
		t.Fatalf("of a lab that is whole: %q", got)
	}

	ns := d.Namespace
	ip(t, "-n", ns("b"), "addr", "del", "10.5.0.78/32", "dev", "eth0")
	ip(t, "-n", ns("a"), "route", "replace", "default", "via", "10.5.0.77", "dev", "eth0", "onlink")
	ip(t, "-n", ns("b"), "neigh", "del", "10.5.0.1", "dev", "eth0")
	ip(t, "-n", ns("lan"), "link", "set", "dev", "b", "nomaster")
	ip(t, "-n", ns("wire3"), "rule", "del", "iif", "r1")
	ip(t, "-n", ns("wire3-base"), "link", "del", "r1")
	if err := namespaces.Delete(ns("wire4")); err != nil {
		t.Fatal(err)
	}
	err := namespaces.Do(t.Context(), ns("z"), func() error {
		return os.WriteFile("/proc/sys/net/ipv4/tcp_keepalive_time", []byte("78"), 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	base.mu.Lock()
	base.have["egress of lan in "+ns("wire2-base")] = qdisc.Netem{Delay: time.Second}
	base.mu.Unlock()
	// What hung on the namespace that went goes in the background.
	var got []string
	for range 200 {
		if got = look(d); strings.Contains(strings.Join(got, "\n"), "devices.eth2: want up, have gone") && strings.Contains(strings.Join(got, "\n"), "nodes.y.devices.eth0: want up, have gone") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	want := []string{
		"nodes.a.routes.0.0.0.0/0: want via 10.5.0.2 by eth0, have via 10.5.0.77 by eth0",
		"nodes.b.devices.eth0.addresses: want 10.5.0.78, have gone",
		"nodes.b.devices.eth0.neighbours.10.5.0.1: want " + macIn(t, m, d, "b", "10.5.0.1") + ", have gone",
		"nodes.r2.devices.eth2: want up, have gone",
		"nodes.z.sysctls.net.ipv4.tcp_keepalive_time: want 77, have 78",
		"nodes.y.devices.eth0: want up, have gone",
		"switches.lan.devices.b: want up, have no port of the bridge",
		"links[3].wire.devices.r1.rule: want table 100 for what comes in of IPv4, have gone",
		"links[3].wire.devices.r2: want up, have gone",
		"links[3].base.devices.r1: want up, have gone",
		"links[5].wire: want namespace " + ns("wire4") + ", have gone",
		"links[2].a_to_b: want delay 1ms, have delay 1s",
		"links[3].b_to_a: want delay 3ms, have gone",
	}
	// The veth's other end is gone with it, and the routes by it.
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	other := d
	other.Targets = other.Targets[:2]
	other.Nodes = append([]Node{{Name: "new"}}, d.Nodes...)
	other.Links = append([]Link{}, d.Links...)
	other.Links[0].Direct = true
	got = look(other)
	for _, w := range []string{
		"nodes.new: want forward false, have ",
		"links[0]: want a-lan, without a wire, have a-lan",
		"targets.b: want , have node b, client a",
	} {
		if !strings.Contains(strings.Join(got, "\n"), w) {
			t.Errorf("no %q in %q", w, got)
		}
	}
}

// macIn is the neighbour's address as laid out.
func macIn(t *testing.T, m *Manager, d Definition, node, address string) string {
	t.Helper()
	r, err := m.get(d.Name)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range r.layout.byName[node].devices[0].neighbours {
		if n.address.String() == address {
			return n.mac.String()
		}
	}
	t.Fatalf("%s does not know %s", node, address)
	return ""
}

// TestDiffService has a service that ended.
func TestDiffService(t *testing.T) {
	d := testDefinition(t, proxyService)
	d.Nodes[1].Services[0].Upstream = "client:1"
	m := newManager(t, t.TempDir())
	info, err := m.Up(t.Context(), d, Identity{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	pid := info.Nodes[1].Services[0].PID
	p, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	for range 200 {
		found, err := m.Diff(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 1 && found[0].Path == "nodes.server.services.proxy" && found[0].Have == "ended" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the end of the service was not found")
}

// TestDiffAdded finds what somebody added to a lab, or changed of what every node has.
func TestDiffAdded(t *testing.T) {
	d := campus(t)
	m := newManager(t, t.TempDir())
	m.cfg.Engine = &impairer{}
	if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	ns := d.Namespace
	ip(t, "-n", ns("a"), "addr", "add", "10.9.9.9/24", "dev", "eth0")
	ip(t, "-n", ns("a"), "route", "add", "10.88.0.0/16", "dev", "eth0")
	ip(t, "-n", ns("b"), "link", "set", "lo", "down")
	ip(t, "-n", ns("b"), "addr", "add", "10.9.9.8/32", "dev", "lo")
	ip(t, "-n", ns("z"), "link", "set", "eth0", "mtu", "1400")
	ip(t, "-n", ns("y"), "link", "add", "extra", "type", "veth", "peer", "name", "extra2")
	ip(t, "-n", ns("wire"), "route", "add", "10.88.0.0/16", "dev", "lan", "table", "100")
	found, err := m.Diff(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	want := []Difference{
		{"nodes.a.devices.eth0.addresses", "", "10.9.9.9/24"},
		{"nodes.a.routes.10.88.0.0/16", "", "by eth0"},
		{"nodes.b.devices.lo.addresses", "", "10.9.9.8/32"},
		{"nodes.b.devices.lo", "up", "down"},
		{"nodes.z.devices.eth0.mtu", "1500", "1400"},
		{"nodes.y.devices.extra2", "", "there (veth)"},
		{"nodes.y.devices.extra", "", "there (veth)"},
		{"links[0].wire.table 100.routes.10.88.0.0/16", "", "by lan"},
	}
	if diff := cmp.Diff(want, found); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
