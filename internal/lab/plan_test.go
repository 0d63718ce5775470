package lab

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/qdisc"
)

func TestPlan(t *testing.T) {
	base := &qdisc.Netem{Loss: 1}
	d := Definition{
		Name:     "x",
		Nodes:    []Node{{Name: "a"}, {Name: "r", Forward: true}, {Name: "b"}},
		Switches: []Switch{{Name: "lan", Subnet: netip.MustParsePrefix("10.5.0.0/24")}},
		Links:    []Link{{A: "a", B: "r", AB: base}, {A: "r", B: "lan"}, {A: "b", B: "lan", Direct: true}},
		Targets:  []TargetDefinition{{Name: "t", Node: "b", Client: "a"}},
	}
	p, err := d.Plan()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, n := range p.Namespaces {
		names = append(names, string(n.Role)+" "+n.Namespace)
	}
	want := []string{"node netem-x-a", "node netem-x-r", "node netem-x-b", "switch netem-x-lan", "wire netem-x-wire", "base netem-x-wire-base", "wire netem-x-wire2"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	prefix := netip.MustParsePrefix
	router := PlannedNamespace{
		Name: "r", Namespace: "netem-x-r", Role: RoleNode, Forward: true,
		Devices: []PlannedDevice{
			{Name: "eth0", Link: 0, Toward: "a", Addresses: []netip.Prefix{prefix("10.64.0.2/32")}},
			{Name: "eth1", Link: 1, Toward: "lan", Addresses: []netip.Prefix{prefix("10.5.0.1/32")}},
		},
	}
	if diff := cmp.Diff(router, p.Namespaces[1], cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.IgnoreFields(PlannedNamespace{}, "Routes")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	links := []PlannedLink{
		{Link: d.Links[0], Wire: "wire", Base: "wire-base", Subnets: []netip.Prefix{prefix("10.64.0.0/24")}},
		{Link: d.Links[1], Wire: "wire2", Subnets: []netip.Prefix{prefix("10.5.0.0/24")}},
		{Link: d.Links[2], Subnets: []netip.Prefix{prefix("10.5.0.0/24")}},
	}
	if diff := cmp.Diff(links, p.Links, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(p.Targets) != 1 || len(p.Namespaces[0].Routes) == 0 {
		t.Errorf("%d targets, routes %v", len(p.Targets), p.Namespaces[0].Routes)
	}
}
