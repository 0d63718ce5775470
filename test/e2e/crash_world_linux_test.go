package e2e

import (
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/match"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// ground is where agents are killed: a cable, of which v0 has a root, a clsact and filters
// that are not netemd's, and beside it here
//
//	w0 - w1  a pair of which w0 has tcx programs of somebody else's at both hooks,
//	t0       a device without Ethernet's header, on which a delay cannot be had with the
//	         ebpf engine, and a clsact is made for the netem engine,
//	b0 - b1  a pair of which b0 has ingress filters in a block that others may share, which are nobody's to
//	         change.
type ground struct {
	*cable
	// before is the dump of it all, at rest.
	before string
}

// prepare makes a ground until the test ends.
func prepare(t *testing.T) *ground {
	t.Helper()
	g := &ground{cable: lay(t)}
	g.foreign()
	end := func(namespace, device, address string) namespaces.VethEnd {
		return namespaces.VethEnd{Namespace: namespace, Name: device, Addresses: []netip.Prefix{netip.MustParsePrefix(address)}}
	}
	err := namespaces.CreateVeth(end(g.here, "w0", "10.81.0.1/24"), end(g.there, "w1", "10.81.0.2/24"))
	if err == nil {
		err = namespaces.CreateVeth(end(g.here, "b0", "10.82.0.1/24"), end(g.there, "b1", "10.82.0.2/24"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"ip", "tuntap", "add", "dev", "t0", "mode", "tun"},
		{"ip", "link", "set", "t0", "addrgenmode", "none", "up"},
		{"tc", "qdisc", "add", "dev", "b0", "ingress_block", "22", "clsact"},
	} {
		if r := in(t, g.here, args...); r.code != 0 {
			t.Fatalf("%v: %s", args, r.stderr)
		}
	}
	if haveTCX() {
		for _, at := range []ebpf.AttachType{ebpf.AttachTCXEgress, ebpf.AttachTCXIngress} {
			l := g.stranger("w0", at)
			t.Cleanup(func() { _ = l.Close() })
		}
	}
	g.before = g.dump()
	for end := time.Now().Add(patience(20 * time.Second)); ; time.Sleep(100 * time.Millisecond) {
		now := g.dump() // carriers and IPv6 addresses take a moment
		if now == g.before && !strings.Contains(now, "tentative") && !strings.Contains(now, "LOWERLAYERDOWN") {
			return g
		}
		if g.before = now; time.Now().After(end) {
			t.Fatalf("the devices do not come to rest:\n%s", now)
		}
	}
}

// of is the ground for a part of the test.
func (g *ground) of(t *testing.T) *ground {
	c := *g.cable
	c.t = t
	return &ground{cable: &c, before: g.before}
}

// haveTCX reports whether the kernel has tcx.
var haveTCX = sync.OnceValue(func() bool {
	_, err := link.QueryPrograms(link.QueryOptions{Target: 1, Attach: ebpf.AttachTCXEgress})
	return err == nil
})

// stranger puts a program of somebody else's before all others at a tcx hook of a device
// here. It goes with what is returned.
func (g *ground) stranger(device string, at ebpf.AttachType) (l link.Link) {
	g.t.Helper()
	err := namespaces.Do(g.t.Context(), g.here, func() error {
		d, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		const next = -1 // TCX_NEXT
		prog, err := match.Load("stranger", asm.Instructions{asm.Mov.Imm(asm.R0, next), asm.Return()})
		if err != nil {
			return err
		}
		defer func() { _ = prog.Close() }()
		l, err = link.AttachTCX(link.TCXOptions{Interface: d.Attrs().Index, Program: prog, Attach: at, Anchor: link.Head()})
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return l
}

// at is a fault at a device here.
func (g *ground) at(device string, s fault.Spec, peers ...string) fault.Spec {
	s.Selector = &target.Selector{Namespace: g.here, Device: device, Peers: peers}
	if s.Content != nil {
		s.Selector.Protocol = 6
	}
	if s.TTL == 0 {
		s.TTL = time.Minute
	}
	return s
}

// loss and delay are impairments.
func lossOf(percent float64) *qdisc.Netem {
	return &qdisc.Netem{Loss: qdisc.Percent(percent)}
}

func delayOf(d time.Duration) *qdisc.Netem { return &qdisc.Netem{Delay: d} }
