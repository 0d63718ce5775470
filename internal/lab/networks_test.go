package lab

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/qdisc"
)

// TestAutomaticNetworks has given networks in the way of automatic ones: none overlaps, and
// the same definition has the same each time.
func TestAutomaticNetworks(t *testing.T) {
	prefix := netip.MustParsePrefix
	d := Definition{
		Name:     "n",
		Nodes:    []Node{{Name: "a"}, {Name: "b"}, {Name: "c"}},
		Switches: []Switch{{Name: "s"}, {Name: "given", Subnet: prefix("10.64.1.128/25")}},
		Links: []Link{
			{A: "a", B: "s"}, {A: "b", B: "given"}, {A: "a", B: "b"},
			{A: "b", B: "c", Subnet: prefix("10.64.2.0/23")}, {A: "a", B: "c"}, {A: "c", B: "s", Subnet6: netip.Prefix{}},
		},
	}
	l, err := d.layout()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range l.networks {
		got = append(got, n.text())
	}
	want := []string{"10.64.0.0/24", "10.64.1.128/25", "10.64.4.0/24", "10.64.2.0/23", "10.64.5.0/24", "10.64.0.0/24"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRandomLabs lays out random labs and checks what must hold in all: no two hosts have an
// address, no two devices a hardware address, each route leads to a neighbour, names of spots
// are those by which a record is taken down, and a definition survives being written down.
func TestRandomLabs(t *testing.T) {
	for seed := range uint64(300) {
		d := randomLab(rand.New(rand.NewPCG(seed, 7)))
		l, err := d.layout()
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		addresses, macs := map[netip.Addr]string{}, map[string]string{}
		var names []string
		for _, s := range l.spots {
			names = append(names, s.name)
			for _, dev := range s.devices {
				at := s.name + " " + dev.name
				if other, ok := macs[dev.mac.String()]; ok {
					t.Errorf("seed %d: %s and %s have one hardware address", seed, at, other)
				}
				macs[dev.mac.String()] = at
				for _, a := range dev.addresses {
					if other, ok := addresses[a]; ok {
						t.Errorf("seed %d: %s and %s have %s", seed, at, other, a)
					}
					addresses[a] = at
				}
			}
			for _, r := range s.routes {
				known := slices.ContainsFunc(r.device.neighbours, func(n neighbour) bool { return n.address == r.via })
				if r.via.IsValid() && !known {
					t.Errorf("seed %d: %s: the way to %v is by %v, which is no neighbour", seed, s.name, r.to, r.via)
				}
			}
		}
		if diff := cmp.Diff(d.spotNames(), names); diff != "" {
			t.Errorf("seed %d: names (-of a record +of the layout):\n%s", seed, diff)
		}
		if again := decoded(t, d); !d.Equal(again) || cmp.Diff(d, again, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()) != "" {
			t.Errorf("seed %d: written down it is another one: %+v", seed, again)
		}
	}
}

func randomLab(r *rand.Rand) Definition {
	d := Definition{Name: "r"}
	for i := range 2 + r.IntN(8) {
		d.Nodes = append(d.Nodes, Node{Name: fmt.Sprintf("n%d", i), Forward: r.IntN(2) == 0})
	}
	for i := range r.IntN(3) {
		s := Switch{Name: fmt.Sprintf("s%d", i)}
		if r.IntN(2) == 0 {
			s.Subnet6 = netip.MustParsePrefix(fmt.Sprintf("fd00:%d::/64", i+1))
		}
		d.Switches = append(d.Switches, s)
		for _, n := range d.Nodes {
			if r.IntN(2) == 0 {
				d.Links = append(d.Links, Link{A: n.Name, B: s.Name, Direct: r.IntN(2) == 0})
			}
		}
	}
	for i := range r.IntN(10) {
		a, b := r.IntN(len(d.Nodes)), r.IntN(len(d.Nodes))
		if a == b {
			continue
		}
		l := Link{A: d.Nodes[a].Name, B: d.Nodes[b].Name, Direct: r.IntN(2) == 0}
		if r.IntN(2) == 0 {
			l.Subnet6 = netip.MustParsePrefix(fmt.Sprintf("fd01:%d::/64", i))
		}
		if r.IntN(3) == 0 {
			l.AB = &qdisc.Netem{Delay: time.Second, Jitter: time.Millisecond, Distribution: qdisc.Custom, Samples: "\xff\x00\x80\x01"}
		}
		d.Links = append(d.Links, l)
	}
	return d
}
