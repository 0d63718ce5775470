package lab

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
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
	l, err := d.layout()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(l.pairs()); n != 1 {
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
	l, err := d.layout()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	macs := map[string]bool{}
	for _, a := range l.pairs() {
		for _, p := range []*device{a, a.peer} {
			if err := namespaces.CheckDevice(p.name); err != nil {
				t.Error(err)
			}
			macs[p.mac.String()] = true
		}
		got = append(got, fmt.Sprintf("%s %s %v - %s %s %v", a.spot.name, a.name, a.addresses, a.peer.spot.name, a.peer.name, a.peer.addresses))
	}
	long := namespaces.Shorten("database-primary-1")
	want := []string{
		"a eth0 [10.78.1.1] - wire a []",
		"wire b [] - b eth0 [10.78.1.2]",
		"b eth1 [10.78.2.1] - wire2 b []",
		"wire2 " + long + " [] - database-primary-1 eth0 [10.78.2.2]",
		"database-primary-1 eth1 [fd00:78::1] - wire3 " + long + " []",
		"wire3 a [] - a eth1 [fd00:78::2]",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(macs) != 12 {
		t.Errorf("%d hardware addresses for 12 devices", len(macs))
	}
}

func addresses(all ...string) []netip.Addr {
	out := make([]netip.Addr, len(all))
	for i, a := range all {
		out[i] = netip.MustParseAddr(a)
	}
	return out
}

func fill(ports []target.Ports) {
	for i := range ports {
		ports[i] = target.Port(uint16(i + 1))
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
			`name "a/b": want 1 to 32 of a-z`, `nodes.Client "Client": want 1 to 32`, `links[0].a "client": want a node or a switch of the lab: Client, server`,
		}},
		{"reserved", func(d *Definition) { d.Nodes[0].Name = "wire" }, []string{`nodes.wire "wire": want another name: lo, all, default, bridge and wire`}},
		{"node twice", func(d *Definition) { d.Nodes[0].Name = "server" }, []string{`nodes.server "server": is there twice`}},
		{"switch twice", func(d *Definition) { d.Switches = []Switch{{Name: "server"}} }, []string{`switches.server "server": is there twice`}},
		{"self", func(d *Definition) { d.Links[0].B = "client" }, []string{`links[0].b "client": want another node`}},
		{"subnet", func(d *Definition) { d.Links[0].Subnet = netip.MustParsePrefix("10.0.0.0/31") }, []string{`links[0].subnet "10.0.0.0/31": want a network of at least 4`}},
		{"host bits", func(d *Definition) { d.Links[0].Subnet = netip.MustParsePrefix("10.0.0.1/24") }, []string{`links[0].subnet "10.0.0.1/24": want a network's own address, such as 10.0.0.0/24`}},
		{"multicast", func(d *Definition) { d.Links[0].Subnet = netip.MustParsePrefix("224.0.0.0/24") }, []string{`want a network that hosts can have`}},
		{"subnet6", func(d *Definition) { d.Links[0].Subnet6 = netip.MustParsePrefix("10.0.0.0/24") }, []string{`links[0].subnet6 "10.0.0.0/24": want a network of IPv6`}},
		{"overlap", func(d *Definition) { d.Links = append(d.Links, d.Links[0]) }, []string{`links[1].subnet "10.77.0.0/24": overlaps with 10.77.0.0/24 of links[0].subnet`}},
		{"address", func(d *Definition) { d.Links[0].AddressA = addresses("10.78.0.1") }, []string{`links[0].address_a "10.78.0.1": want an address in 10.77.0.0/24`}},
		{"network address", func(d *Definition) { d.Links[0].AddressB = addresses("10.77.0.255") }, []string{`links[0].address_b "10.77.0.255": want an address`}},
		{"address twice", func(d *Definition) {
			d.Links[0].AddressA, d.Links[0].AddressB = addresses("10.77.0.9"), addresses("10.77.0.9")
		}, []string{`links[0].address_b "10.77.0.9": is client's already`}},
		{"two switches", func(d *Definition) {
			d.Switches = []Switch{{Name: "s1"}, {Name: "s2"}}
			d.Links = append(d.Links, Link{A: "s1", B: "s2"})
		}, []string{`links[1].b "s2": want a node: two switches`}},
		{"switch", func(d *Definition) {
			d.Switches = []Switch{{Name: "s1", Subnet: netip.MustParsePrefix("10.9.0.0/30")}}
			d.Nodes = append(d.Nodes, Node{Name: "n"})
			d.Links = append(d.Links, Link{A: "s1", B: "n"}, Link{A: "client", B: "s1"}, Link{A: "s1", B: "server"})
		}, []string{`switches.s1.subnet "10.9.0.0/30": want a network with an address for each of its 3 nodes`}},
		{"switch's subnet", func(d *Definition) {
			d.Switches = []Switch{{Name: "s1"}}
			d.Links = append(d.Links, Link{A: "s1", B: "client", Subnet: netip.MustParsePrefix("10.9.0.0/24"), AddressA: addresses("10.9.0.1")}, Link{A: "client", B: "s1"})
		}, []string{`links[1].subnet "10.9.0.0/24": is not the link's, which is in the network of switch s1`, `links[1].address_a "10.9.0.1": is of a switch, which has no address`, `links[2] "client-s1": is there twice`}},
		{"impairment", func(d *Definition) { d.Links[0].AB = &qdisc.Netem{Jitter: time.Second} }, []string{`links[0].a_to_b.delay.jitter`}},
		{"sysctl", func(d *Definition) {
			d.Nodes[0].Sysctls = []Sysctl{{"kernel.panic", "1"}, {"net.a/../b", "1"}, {"net.x", ""}}
		}, []string{
			`nodes.client.sysctls.kernel.panic "kernel.panic": want a name that begins with net.`, `nodes.client.sysctls.net.a/../b`, "nodes.client.sysctls.net.x: want 1 to",
		}},
		{"routes", func(d *Definition) {
			d.Nodes[0].Routes = []Route{{To: netip.MustParsePrefix("10.0.0.1/8"), Via: "server"}, {Via: "server"}}
		}, []string{`nodes.client.routes[0].to "10.0.0.1/8": want a network's own address, such as 10.0.0.0/8`, `nodes.client.routes[1].to: want a network`}},
		{"via", func(d *Definition) {
			d.Nodes[0].Routes = []Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: "10.1.1.1"}, {To: netip.MustParsePrefix("fd00::/8"), Via: "server"}}
		}, []string{`nodes.client.routes[0].via "10.1.1.1": want a node that client shares`, `nodes.client.routes[1].via "server": want`}},
		{"kind", func(d *Definition) { d.Nodes[1].Services[0].Kind = "mysql" }, []string{`nodes.server.services.postgres.kind "mysql": want command, postgres, toxiproxy`}},
		{"command", func(d *Definition) { d.Nodes[1].Services[0] = ServiceDefinition{Name: "x", ReplicaOf: "y"} }, []string{
			`nodes.server.services.x.command: want a program`, `nodes.server.services.x.replica_of "y": is for services of kind postgres`,
		}},
		{"upstream", func(d *Definition) { d.Nodes[1].Services[1].Upstream = "nope:1" }, []string{`services.proxy.upstream "nope:1": want a node of the lab that has a link: client, server`}},
		{"replica", func(d *Definition) { d.Nodes[1].Services[0].ReplicaOf = "proxy" }, []string{`services.postgres.replica_of "proxy": want a service of kind postgres`}},
		{"ready of a kind", func(d *Definition) { d.Nodes[1].Services[0].Ready.TCP = 1 }, []string{`services.postgres.ready.tcp "1": is for services of kind command`}},
		{"log", func(d *Definition) { d.Nodes[1].Services[0].Log = "x.log" }, []string{`services.postgres.log "x.log": want an absolute path`}},
		{"NUL", func(d *Definition) {
			d.Nodes[1].Services[0] = ServiceDefinition{Name: "x", Command: []string{"a", "b\x00"}}
		}, []string{`services.x.command "b\x00": want a text without a NUL byte`}},
		{"circle", func(d *Definition) { d.Nodes[1].Services[1].Upstream = "server:15432" }, []string{`services.proxy.upstream "server:15432": want a service that does not wait for this one`}},
		{"port", func(d *Definition) { d.Nodes[1].Services[1].Port = 5432 }, []string{`services.proxy.port "5432": is another service's`}},
		{"ready at another's", func(d *Definition) {
			d.Nodes[1].Services[1] = ServiceDefinition{Name: "x", Command: []string{"x"}, Ready: Readiness{TCP: 5432}}
		}, []string{`services.x.ready.tcp "5432": is another service's of the node`}},
		{"ready", func(d *Definition) {
			d.Nodes[1].Services[0].Ready, d.Nodes[1].Services[0].ReadyTimeout = Readiness{TCP: 1, HTTP: "x"}, -1
		}, []string{`services.postgres.ready: want one of tcp, http and command`, `ready.http "x": want a URL`, `ready_timeout "-1ns": want up to 1h`}},
		{"client", func(d *Definition) { d.Targets[0].Client = "nope" }, []string{`targets.pg.client "nope": want another node of the lab: client, server`}},
		{"no way", func(d *Definition) { d.Nodes, d.Targets[0].Client = append(d.Nodes, Node{Name: "alone"}), "alone" }, []string{`targets.pg.client "alone": want a node from which there is a way to server; what lies between must have forward: true`}},
		{"which client", func(d *Definition) {
			d.Nodes, d.Targets[0].Client = append(d.Nodes, Node{Name: "n"}), ""
			d.Links = append(d.Links, Link{A: "n", B: "server"})
		}, []string{`targets.pg.client: want a node: server has 2 neighbours (client, n)`}},
		{"target node", func(d *Definition) { d.Targets[0].Node = "wire" }, []string{`targets.pg.node "wire": want a node of the lab: client, server`}},
		{"target link", func(d *Definition) { d.Targets[0].Link = "a-b" }, []string{`targets.pg.link "a-b": want a link of node server, or one on the way to it: client-server`}},
		{"proxy", func(d *Definition) { d.Targets[0].Proxy = "postgres" }, []string{`targets.pg.proxy "postgres": want a service of node server of kind toxiproxy`}},
		{"protocol", func(d *Definition) { d.Targets[0].Protocol = 1 }, []string{`targets.pg.protocol "icmp": want tcp, udp`}},
		{"many ports", func(d *Definition) { d.Targets[0].Ports = make([]target.Ports, 65); fill(d.Targets[0].Ports) }, []string{`targets.pg.port`, "65 flows are too many"}},
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
