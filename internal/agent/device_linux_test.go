package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// arrive sends n numbered UDP packets from 10.78.0.1 in a to that port of 10.78.0.2 in
// b, and returns how many different ones came.
func arrive(t *testing.T, a, b string, port uint16, n int) int {
	t.Helper()
	var in, out *net.UDPConn
	open := func(ns string, f func() error) {
		if err := namespaces.Do(t.Context(), ns, f); err != nil {
			t.Fatal(err)
		}
	}
	open(b, func() (err error) {
		in, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), port)))
		return err
	})
	defer func() { _ = in.Close() }()
	open(a, func() (err error) {
		out, err = net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr("10.78.0.2"), port)))
		return err
	})
	defer func() { _ = out.Close() }()
	for i := range n {
		if _, err := fmt.Fprint(out, i); err != nil {
			t.Fatal(err)
		}
		if i%50 == 49 {
			time.Sleep(time.Millisecond) // no socket buffer overflows
		}
	}
	seen := map[string]bool{}
	_ = in.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	buf := make([]byte, 64)
	for len(seen) < n {
		k, err := in.Read(buf)
		if err != nil {
			break
		}
		seen[string(buf[:k])] = true
	}
	return len(seen)
}

// packetEngine is the ebpf engine, which works everywhere, and netem where a run is for it.
func packetEngine() fault.Engine {
	if os.Getenv("NETEMD_TEST_NETEM") != "" {
		return fault.Netem
	}
	return fault.EBPF
}

// apply is Apply on the packetEngine.
func apply(t testing.TB, c *client.Client, s fault.Spec) fault.Fault {
	t.Helper()
	s.Engine = packetEngine()
	f, err := c.Apply(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// ports are UDP packets of v0 to these ports.
func ports(ns string, ps ...target.Ports) *target.Selector {
	return &target.Selector{Namespace: ns, Device: "v0", Protocol: 17, PeerPorts: ps}
}

func TestFaultOnADevice(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	all := &qdisc.Netem{Loss: 100}
	if got := arrive(t, a, b, 5001, 200); got != 200 {
		t.Fatalf("before any fault %d of 200 arrive", got)
	}

	one := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5001)), Packet: all})
	if one.Spec.Selector == nil || one.Spec.Selector.String() != "v0@"+a+" udp port 5001" || len(one.Placement) != 1 || len(one.Offloads) == 0 {
		t.Errorf("applied: %+v", one)
	}
	hit, spared := arrive(t, a, b, 5001, 200), arrive(t, a, b, 5002, 200)
	if hit != 0 || spared != 200 {
		t.Errorf("port 5001: %d of 200 arrive, want none; port 5002: %d, want all", hit, spared)
	}

	// What overlaps is refused, before anything changes; what does not stands beside it.
	_, err := c.Apply(t.Context(), fault.Spec{Selector: ports(a, target.Ports{First: 5000, Last: 5010}), Packet: &qdisc.Netem{Loss: 5}, Engine: fault.EBPF})
	for _, want := range []string{"udp to port 5000-5010 overlaps udp to port 5001", one.ID, "netemctl show", "exclude"} {
		if !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), want) {
			t.Errorf("overlap: %v, want %q in it", err, want)
		}
	}
	two := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5002)), Packet: all})
	if got := arrive(t, a, b, 5002, 200); got != 0 {
		t.Errorf("port 5002 under its own fault: %d of 200 arrive", got)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: one.ID}); err != nil {
		t.Fatal(err)
	}
	if x, y := arrive(t, a, b, 5001, 200), arrive(t, a, b, 5002, 200); x != 200 || y != 0 {
		t.Errorf("after the first was cleared: %d of 200 and %d of 200 arrive, want all and none", x, y)
	}
	cleared, err := c.Clear(t.Context(), fault.Selector{Device: "v0@" + a})
	if err != nil || len(cleared) != 1 || cleared[0].ID != two.ID {
		t.Errorf("clear of the device: %+v, %v", cleared, err)
	}
	if got := arrive(t, a, b, 5002, 200); got != 200 {
		t.Errorf("after all was cleared %d of 200 arrive", got)
	}

	// The same seen from the other end: packets that come from the peer's port.
	apply(t, c, fault.Spec{Selector: &target.Selector{Namespace: b, Device: "v1", Protocol: 17, LocalPorts: []target.Ports{target.Port(5003)}}, Direction: fault.From, Packet: all})
	if x, y := arrive(t, a, b, 5003, 200), arrive(t, a, b, 5004, 200); x != 0 || y != 200 {
		t.Errorf("from: %d and %d of 200 arrive, want none and all", x, y)
	}
}

func TestRefusedDevices(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	for name, tt := range map[string]struct {
		spec fault.Spec
		want string
	}{
		"unknown device":    {fault.Spec{Selector: &target.Selector{Namespace: a, Device: "eth7"}}, `dev "eth7": want a device that exists in netns ` + a + ": lo, v0"},
		"unknown namespace": {fault.Spec{Selector: &target.Selector{Namespace: a + "-no", Device: "v0"}}, `netns "` + a + `-no": want a network namespace that exists: `},
		"from all of lo":    {fault.Spec{Selector: &target.Selector{Namespace: a, Device: "lo"}, Direction: fault.From}, "direction: want to: on a loopback device every packet passes egress"},
		"bad protocol":      {fault.Spec{Selector: &target.Selector{Namespace: a, Device: "v0", Protocol: 1, PeerPorts: []target.Ports{target.Port(80)}}}, `port "80": want nothing: icmp has no ports`},
	} {
		t.Run(name, func(t *testing.T) {
			tt.spec.Packet, tt.spec.Engine = &qdisc.Netem{Loss: 5}, fault.EBPF
			_, err := c.Apply(t.Context(), tt.spec)
			if !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
	if _, err := c.Clear(t.Context(), fault.Selector{Device: "eth7@" + a}); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("clear of an unknown device: %v", err)
	}
	if got, err := c.Clear(t.Context(), fault.Selector{Device: "v0@" + a}); err != nil || len(got) != 0 {
		t.Errorf("clear of a device without faults: %v, %v", got, err)
	}
}

// Both directions of a flow on loopback are told apart by the port.
func TestFaultOnLoopback(t *testing.T) {
	a := netns(t, "a")
	c := serve(t)
	s := &target.Selector{Namespace: a, Device: "lo", Protocol: 17, PeerPorts: []target.Ports{target.Port(5001)}}
	to := apply(t, c, fault.Spec{Selector: s, Packet: &qdisc.Netem{Loss: 100}})
	from := apply(t, c, fault.Spec{Selector: s, Direction: fault.From, Packet: &qdisc.Netem{Loss: 50}})
	if to.Placement[0] != from.Placement[0] {
		t.Errorf("placed at %v and %v, want egress for both", to.Placement, from.Placement)
	}
	for _, d := range []fault.Direction{fault.To, fault.Both} {
		if _, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil {
			t.Fatal(err)
		}
		whole := apply(t, c, fault.Spec{Selector: &target.Selector{Namespace: a, Device: "lo"}, Direction: d, Packet: &qdisc.Netem{Loss: 5}})
		if len(whole.Placement) != 1 {
			t.Errorf("direction %s on all of lo: %v, want one place", d, whole.Placement)
		}
	}
}

// A device that is made anew is another one.
func TestDeviceMadeAnew(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	f := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5001)), Packet: &qdisc.Netem{Loss: 100}})
	err := namespaces.Do(t.Context(), a, func() error {
		link, err := netlink.LinkByName("v0")
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
	if err != nil {
		t.Fatal(err)
	}
	pair(t, a, b)
	for end := time.Now().Add(time.Second); ; time.Sleep(20 * time.Millisecond) {
		got, err := c.Get(t.Context(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.State == fault.Lost {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("state %s a second after the device went, want lost", got.State)
		}
	}
	if got := arrive(t, a, b, 5001, 200); got != 200 {
		t.Errorf("on the new device %d of 200 arrive, want all", got)
	}
	if got, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil || len(got) != 1 {
		t.Errorf("clear of a lost fault: %v, %v", got, err)
	}
}

// A device is cleared by the name that it has now, and by the one that it had.
func TestClearOfARenamedDevice(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	for _, name := range []string{"w0", "v0"} {
		f := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5001)), Packet: &qdisc.Netem{Loss: 100}})
		rename := func(from, to string) {
			t.Helper()
			err := namespaces.Do(t.Context(), a, func() error {
				link, err := netlink.LinkByName(from)
				if err != nil {
					return err
				}
				// Older kernels rename only what is down.
				return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, to), netlink.LinkSetUp(link))
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		rename("v0", "w0")
		got, err := c.Clear(t.Context(), fault.Selector{Device: name + "@" + a})
		if err != nil || len(got) != 1 || got[0].ID != f.ID {
			t.Errorf("clear of %s, v0 before: %+v, %v, want fault %s", name, got, err, f.ID)
		}
		rename("w0", "v0")
		if _, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil {
			t.Fatal(err)
		}
	}
}
