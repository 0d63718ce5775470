package lab

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/target"
	"netemd/namespaces"
)

func TestBuiltinTargets(t *testing.T) {
	d, ok := Builtin("pg")
	if !ok {
		t.Fatal("no pg")
	}
	if _, ok := Builtin("nope"); ok {
		t.Error("there is a nope")
	}
	got, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	server := netip.MustParsePrefix("10.77.0.2/32")
	want := []target.Target{{
		Name: "pg", Lab: "pg", Node: "server",
		Address:         netip.MustParseAddrPort("10.77.0.2:5432"),
		Proxy:           netip.MustParseAddrPort("10.77.0.2:15432"),
		ClientNamespace: "netem-pg-client", ServerNamespace: "netem-pg-server",
		To: target.Place{
			Namespace: "netem-pg-wire", Device: "server", Hook: target.Egress, Owned: true,
			Match: target.Match{Include: []target.Flow{{Protocol: 6, Destination: server, DestinationPorts: target.Port(5432)}}},
		},
		From: target.Place{
			Namespace: "netem-pg-wire", Device: "client", Hook: target.Egress, Owned: true,
			Match: target.Match{Include: []target.Flow{{Protocol: 6, Source: server, SourcePorts: target.Port(5432)}}},
		},
	}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestDirect checks that without a wire the packets are caught where they leave the
// other node.
func TestDirect(t *testing.T) {
	d, _ := Builtin("pg")
	d.Links[0].Direct = true
	got, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	places := []string{got[0].To.String(), got[0].From.String()}
	if diff := cmp.Diff([]string{"egress of eth0 in netem-pg-client", "egress of eth0 in netem-pg-server"}, places); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := len(d.cables(0)); n != 1 {
		t.Errorf("%d veth pairs, want 1", n)
	}
}

func TestLayoutOfSeveralLinks(t *testing.T) {
	d := Definition{
		Name:  "three",
		Nodes: []Node{{Name: "a"}, {Name: "b"}, {Name: "database-primary-1"}},
		Links: []Link{
			{A: "a", B: "b", Subnet: netip.MustParsePrefix("10.78.1.0/24")},
			{A: "b", B: "database-primary-1", Subnet: netip.MustParsePrefix("10.78.2.0/30")},
			{A: "database-primary-1", B: "a", Subnet: netip.MustParsePrefix("fd00:78::/64")},
		},
	}
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	var got []string
	macs := map[string]bool{}
	for i := range d.Links {
		for _, c := range d.cables(i) {
			for _, p := range []port{c.a, c.b} {
				if err := namespaces.CheckDevice(p.device); err != nil {
					t.Error(err)
				}
				macs[p.mac.String()] = true
			}
			got = append(got, c.a.node+" "+c.a.device+" "+c.a.own.String()+" - "+c.b.node+" "+c.b.device+" "+c.b.own.String())
		}
	}
	long := namespaces.Shorten("database-primary-1")
	want := []string{
		"a eth0 10.78.1.1 - wire a invalid IP",
		"wire b invalid IP - b eth0 10.78.1.2",
		"b eth1 10.78.2.1 - wire2 b invalid IP",
		"wire2 " + long + " invalid IP - database-primary-1 eth0 10.78.2.2",
		"database-primary-1 eth1 fd00:78::1 - wire3 " + long + " invalid IP",
		"wire3 a invalid IP - a eth1 fd00:78::2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(macs) != 12 {
		t.Errorf("%d hardware addresses for 12 devices", len(macs))
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Definition)
		want   []string
	}{
		{"good", func(*Definition) {}, nil},
		{"names", func(d *Definition) { d.Name, d.Nodes[0].Name = "a/b", "Client" }, []string{
			`name: "a/b": want 1 to 32 of a-z`, `nodes.Client: "Client": want 1 to 32`, `links[0]: no node "client"`,
		}},
		{"reserved", func(d *Definition) { d.Nodes[0].Name = "wire" }, []string{"nodes.wire: the name is reserved"}},
		{"node twice", func(d *Definition) { d.Nodes[0].Name = "server" }, []string{"nodes.server: is there twice"}},
		{"self", func(d *Definition) { d.Links[0].B = "client" }, []string{`links[0]: joins "client" with itself`}},
		{"subnet", func(d *Definition) { d.Links[0].Subnet = netip.MustParsePrefix("10.0.0.0/31") }, []string{"links[0].subnet: 10.0.0.0/31: want a network of at least 4"}},
		{"overlap", func(d *Definition) { d.Links = append(d.Links, d.Links[0]) }, []string{"links[1].subnet: 10.77.0.0/24 overlaps"}},
		{"kind", func(d *Definition) { d.Nodes[1].Services[0].Kind = "mysql" }, []string{`nodes.server.services.postgres.kind: "mysql": want command, postgres`}},
		{"upstream", func(d *Definition) { d.Nodes[1].Services[1].Upstream = "nope:1" }, []string{"services.proxy.upstream: \"nope:1\": want a node"}},
		{"port", func(d *Definition) { d.Nodes[1].Services[1].Port = 5432 }, []string{"services.proxy.port: 5432: want"}},
		{"target", func(d *Definition) { d.Targets[0].Client = "nope" }, []string{`no link between client "nope"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := pg()
			c.change(&d)
			err := d.Validate()
			if len(c.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in %v", w, err)
				}
			}
		})
	}
}
