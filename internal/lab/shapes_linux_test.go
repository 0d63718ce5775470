package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// campus is a lab with everything in it: a switch of nodes with and without wires, routers
// in a row, both families, a base impairment, own routes, addresses and sysctls.
func campus(t testing.TB) Definition {
	t.Helper()
	testenv.Root(t)
	lan6, far6 := netip.MustParsePrefix("fd00:1::/64"), netip.MustParsePrefix("fd00:2::/64")
	return Definition{
		Name: fmt.Sprintf("nt-lab-%d-%d", os.Getpid(), labCounter.Add(1)),
		Nodes: []Node{
			{Name: "a"}, {Name: "b"},
			{Name: "r1", Forward: true}, {Name: "r2", Forward: true},
			{Name: "z", Sysctls: []Sysctl{{"net.ipv4.tcp_syn_retries", "2"}, {"net.ipv4.conf.eth0.rp_filter", "1"}}},
			{Name: "y", Routes: []Route{{To: everything(false), Via: "r2"}, {To: netip.MustParsePrefix("10.5.0.0/24"), Via: "r2"}}},
		},
		Switches: []Switch{{Name: "lan", Subnet: netip.MustParsePrefix("10.5.0.0/24"), Subnet6: lan6}},
		Links: []Link{
			{A: "a", B: "lan"},
			{A: "lan", B: "b", AddressB: addresses("10.5.0.77", "10.5.0.78", "fd00:1::77"), Direct: true},
			{A: "r1", B: "lan", AB: &qdisc.Netem{Delay: time.Millisecond}},
			{A: "r1", B: "r2", Subnet6: far6, AB: &qdisc.Netem{Delay: 2 * time.Millisecond}, BA: &qdisc.Netem{Delay: 3 * time.Millisecond}},
			{A: "r2", B: "z", Subnet6: netip.MustParsePrefix("fd00:3::/64"), Direct: true},
			{A: "r2", B: "y"},
		},
		Targets: []TargetDefinition{
			{Name: "z", Node: "z", Client: "a", Ports: []target.Ports{target.Port(80)}},
			{Name: "middle", Node: "z", Client: "a", Protocol: 6, Ports: []target.Ports{target.Port(80)}, Link: "r1-r2"},
			{Name: "b", Node: "b", Client: "a"},
		},
	}
}

// impairer takes base impairments and remembers them.
type impairer struct {
	mu   sync.Mutex
	have map[string]qdisc.Netem
}

func (i *impairer) Set(_ context.Context, p target.Place, n qdisc.Netem) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if p.Index == 0 || p.Cookie == 0 {
		return errors.New("a place without a device")
	}
	if i.have == nil {
		i.have = map[string]qdisc.Netem{}
	}
	i.have[p.String()] = n
	return nil
}

func (i *impairer) Read(_ context.Context, p target.Place) (qdisc.Netem, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.have[p.String()], nil
}

func (i *impairer) Clear(_ context.Context, p target.Place) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.have, p.String())
	return nil
}

// reachable connects from every node to every address of every other one.
func reachable(t *testing.T, d Definition) {
	t.Helper()
	l, err := d.layout()
	if err != nil {
		t.Fatal(err)
	}
	const port = 7777
	for _, s := range l.spots {
		if s.role != hostRole {
			continue
		}
		var listener net.Listener
		err := namespaces.Do(t.Context(), d.Namespace(s.name), func() (err error) {
			listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = listener.Close() }()
	}
	for _, from := range l.spots {
		for _, to := range l.spots {
			if from.role != hostRole || to.role != hostRole || from == to {
				continue
			}
			for _, a := range l.addresses(to.name) {
				if a.Is6() && !hasSix(l.addresses(from.name)) {
					continue
				}
				c, err := dial(t.Context(), d.Namespace(from.name), netip.AddrPortFrom(a, port))
				if err != nil {
					t.Errorf("%s to %s (%s): %v", from.name, to.name, a, err)
					continue
				}
				_ = c.Close()
			}
		}
	}
}

func hasSix(all []netip.Addr) bool {
	for _, a := range all {
		if a.Is6() {
			return true
		}
	}
	return false
}

func TestCampus(t *testing.T) {
	d := campus(t)
	dir := t.TempDir()
	m := newManager(t, dir)
	if _, err := m.Up(t.Context(), d, Identity{}, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without an engine for base impairments: %v", err)
	}
	var base impairer
	m.cfg.Engine = &base
	var steps []string
	info, err := m.Up(t.Context(), d, Identity{}, func(s string) { steps = append(steps, s) })
	if err != nil {
		t.Fatal(err)
	}
	t.Log(steps)

	ns := d.Namespace
	want := map[string]qdisc.Netem{
		"egress of lan in " + ns("wire2-base"): *d.Links[2].AB,
		"egress of r2 in " + ns("wire3-base"):  *d.Links[3].AB,
		"egress of r1 in " + ns("wire3-base"):  *d.Links[3].BA,
	}
	if diff := cmp.Diff(want, base.have); diff != "" {
		t.Errorf("base impairments (-want +got):\n%s", diff)
	}
	reachable(t, d)

	// A leaf has one way out, for each family; a router knows each network.
	contains(t, ip(t, "-n", ns("a"), "route"), "default via 10.5.0.2 dev eth0")
	contains(t, ip(t, "-6", "-n", ns("a"), "route"), "default via fd00:1::2 dev eth0")
	contains(t, ip(t, "-n", ns("b"), "addr"), "10.5.0.77/32", "10.5.0.78/32", "fd00:1::77/128")
	contains(t, ip(t, "-n", ns("r1"), "route"), "10.64.1.0/24 via 10.64.0.2 dev eth1", "10.64.2.0/24 via 10.64.0.2 dev eth1")
	contains(t, ip(t, "-n", ns("y"), "route"), "default via 10.64.2.1 dev eth0", "10.5.0.0/24 via 10.64.2.1 dev eth0")
	if n := strings.Count(ip(t, "-n", ns("y"), "route"), "default"); n != 1 {
		t.Errorf("%d default routes in y", n)
	}
	for _, n := range info.Nodes {
		if n.Name == "z" {
			contains(t, fmt.Sprint(n.Sysctls), "{net.ipv4.tcp_syn_retries 2}", "{net.ipv4.conf.eth0.rp_filter 1}")
		}
	}

	ts, err := m.Targets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for _, x := range ts {
		places = append(places, fmt.Sprintf("%s at %s: %s; %s", x.Name, x.Address, x.To, x.From))
	}
	wantPlaces := []string{
		"z at 10.64.1.2:80: egress of eth1 in " + ns("r2") + "; egress of eth0 in " + ns("z"),
		"middle at 10.64.1.2:80: egress of r2 in " + ns("wire3") + "; egress of r1 in " + ns("wire3"),
		"b at 10.5.0.77:0: egress of b in " + ns("lan") + "; egress of eth0 in " + ns("b"),
	}
	if diff := cmp.Diff(wantPlaces, places); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	const tcp, udp = 6, 17
	four, six := netip.MustParsePrefix("10.64.1.2/32"), netip.MustParsePrefix("fd00:3::2/128")
	port := target.Port(80)
	flows := []target.Flow{
		{Protocol: tcp, Destination: four, DestinationPorts: port}, {Protocol: udp, Destination: four, DestinationPorts: port},
		{Protocol: tcp, Destination: six, DestinationPorts: port}, {Protocol: udp, Destination: six, DestinationPorts: port},
	}
	if diff := cmp.Diff(flows, ts[0].To.Match.Include, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("flows of z (-want +got):\n%s", diff)
	}

	// Adopted by the next agent, with its base impairments put on again.
	_ = m.Close()
	next := newManager(t, dir)
	var again impairer
	next.cfg.Engine = &again
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, again.have); diff != "" {
		t.Errorf("base impairments after the adoption (-want +got):\n%s", diff)
	}
	if got, err := next.Up(t.Context(), d, Identity{}, nil); err != nil || len(got.Nodes) != len(info.Nodes) {
		t.Errorf("up again: %v, %v", got, err)
	}
	if _, err := next.Down(t.Context(), d.Name); err != nil {
		t.Error(err)
	}
	if len(again.have) != 0 {
		t.Errorf("base impairments after the end: %v", again.have)
	}
	nothingLeft(t, dir, d)
}

// TestQuiet checks that nothing in a lab of IPv4 talks unasked, not even a bridge, and that
// a switch sends a packet to its port alone. (With IPv6 each device tells its multicast
// groups once; the kernel cannot be kept from it.)
func TestQuiet(t *testing.T) {
	d := campus(t)
	d.Switches[0].Subnet6 = netip.Prefix{}
	for i := range d.Links {
		d.Links[i].AB, d.Links[i].BA, d.Links[i].Subnet6 = nil, nil, netip.Prefix{}
	}
	d.Links[1].AddressB = d.Links[1].AddressB[:2]
	m := newManager(t, t.TempDir())
	if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	sent := func() string { return ip(t, "-s", "-s", "-n", d.Namespace("lan"), "link") }
	for _, port := range []string{"a", "b", "r1"} {
		if n := packets(t, d.Namespace("lan"), port); n != 0 {
			t.Errorf("%d packets left by port %s:\n%s", n, port, sent())
		}
	}
	c := udp(t, d.Namespace("a"), "10.64.1.2:9")
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(10 * time.Second)
	for packets(t, d.Namespace("lan"), "r1") == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if r, b := packets(t, d.Namespace("lan"), "r1"), packets(t, d.Namespace("lan"), "b"); r != 1 || b != 0 {
		t.Errorf("%d packets to r1, %d to b, want 1 and 0:\n%s", r, b, sent())
	}
}

func udp(t *testing.T, namespace, to string) (c net.Conn) {
	t.Helper()
	err := namespaces.Do(t.Context(), namespace, func() (err error) {
		c, err = net.Dial("udp", to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// packets is how many packets a device has sent.
func packets(t *testing.T, namespace, device string) (n int) {
	t.Helper()
	err := withHandle(t.Context(), namespace, func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err == nil {
			n = int(link.Attrs().Statistics.TxPackets)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRefusedSysctl has a sysctl that the kernel does not know, and one that it makes
// something else of: the lab is refused by its name, and leaves nothing.
func TestRefusedSysctl(t *testing.T) {
	for name, want := range map[string]string{
		"net.ipv4.no_such_thing":  "sysctl net.ipv4.no_such_thing: this kernel has none",
		"net.ipv4.ip_local_range": "net.ipv4.ip_local_range",
		"net.core.rmem_max":       "net.core.rmem_max",
	} {
		d := testDefinition(t)
		d.Nodes[0].Sysctls = []Sysctl{{name, "1"}}
		dir := t.TempDir()
		m := newManager(t, dir)
		_, err := m.Up(t.Context(), d, Identity{}, nil)
		if err == nil || !strings.Contains(err.Error(), "node client: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
		if name == "net.ipv4.no_such_thing" && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v, want unsupported", name, err)
		}
		nothingLeft(t, dir, d)
	}
}

// TestCopies has two copies of one lab side by side, and two agents with a lab each.
func TestCopies(t *testing.T) {
	d := campus(t)
	for i := range d.Links {
		d.Links[i].AB, d.Links[i].BA = nil, nil
	}
	copied := d
	copied.Name += "-copy"
	others := d
	others.Name += "-other"
	dir, dir2 := t.TempDir(), t.TempDir()
	m, other := newManager(t, dir), newManager(t, dir2)
	var wg sync.WaitGroup
	for _, up := range []struct {
		m *Manager
		d Definition
	}{{m, d}, {m, copied}, {other, others}} {
		wg.Go(func() {
			if _, err := up.m.Up(t.Context(), up.d, Identity{}, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, x := range []Definition{d, copied, others} {
		reachable(t, x)
	}
	if _, err := m.Down(t.Context(), d.Name); err != nil {
		t.Error(err)
	}
	reachable(t, copied)
	if err := cleaned(t.Context(), m); err != nil {
		t.Error(err)
	}
	nothingLeft(t, dir, copied)
	reachable(t, others)
}
