package labfile

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/lab"
	"netemd/internal/lab/examples"
	"netemd/internal/target"
	"netemd/qdisc"
)

var compare = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}), cmpopts.EquateEmpty()}

// shop has every key.
const shop = `lab: shop
nodes:
  client: {}
  web:
    forward: true
    sysctls: {net.ipv4.tcp_syn_retries: 3, net.ipv4.tcp_rmem: "4096 131072 6291456"}
    routes: [{to: 10.9.0.0/16, via: db}]
    services:
      - name: api
        command: [./api, --port, "8080", ""]
        user: nobody
        directory: run
        environment: {LEVEL: debug, EMPTY: ""}
        ready: {http: "http://127.0.0.1:8080/healthz"}
        ready_timeout: 30s
        log: api.log
      - {name: script, command: [sh, -c, "echo $HOME"], ready: {command: [./check]}}
  db:
    services:
      - {name: postgres, kind: postgres, port: 5432}
      - {name: standby, kind: postgres, port: 5433, replica_of: postgres}
      - {name: proxy, kind: toxiproxy, port: 15432, upstream: db:5432, api: 8474}
switches: {lan: {subnet: 10.5.0.0/24, subnet6: fd00:5::/64}}
links:
  - {a: client, b: web, subnet: 10.1.0.0/24, subnet6: fd00:1::/64, address_a: [10.1.0.7, "fd00:1::7"], address_b: 10.1.0.8, impairment: {delay: 10ms, rate: 100mbit}}
  - {a: web, b: db, wire: false}
  - {a: db, b: lan, a_to_b: loss 1%}
targets:
  pg: {node: db, port: 5432, protocol: tcp, client: client, proxy: proxy}
  all: {node: db, port: [80, 8000-8100], link: web-db}
`

func TestParse(t *testing.T) {
	var f file
	doc := format.Read("shop.yaml", []byte(shop), &f)
	doc.Add(f.links()...)
	doc.Add(f.paths("/srv")...)
	doc.Add(f.references()...)
	if err := doc.Err(); err != nil {
		t.Fatal(err)
	}
	addr, prefix := netip.MustParseAddr, netip.MustParsePrefix
	base := &qdisc.Netem{Delay: 10 * time.Millisecond, Rate: 12_500_000}
	want := lab.Definition{
		Name: "shop",
		Nodes: []lab.Node{
			{Name: "client"},
			{
				Name: "web", Forward: true,
				Sysctls: []lab.Sysctl{{Name: "net.ipv4.tcp_syn_retries", Value: "3"}, {Name: "net.ipv4.tcp_rmem", Value: "4096 131072 6291456"}},
				Routes:  []lab.Route{{To: prefix("10.9.0.0/16"), Via: "db"}},
				Services: []lab.ServiceDefinition{
					{
						Name: "api", Command: []string{"/srv/api", "--port", "8080", ""}, User: "nobody", Directory: "/srv/run", Environment: []string{"LEVEL=debug", "EMPTY="},
						Ready: lab.Readiness{HTTP: "http://127.0.0.1:8080/healthz"}, ReadyTimeout: 30 * time.Second, Log: "/srv/api.log",
					},
					{Name: "script", Command: []string{"sh", "-c", "echo $HOME"}, Directory: "/srv", Ready: lab.Readiness{Command: []string{"/srv/check"}}},
				},
			},
			{Name: "db", Services: []lab.ServiceDefinition{
				{Name: "postgres", Kind: lab.KindPostgres, Port: 5432},
				{Name: "standby", Kind: lab.KindPostgres, Port: 5433, ReplicaOf: "postgres"},
				{Name: "proxy", Kind: lab.KindToxiproxy, Port: 15432, Upstream: "db:5432", API: 8474},
			}},
		},
		Switches: []lab.Switch{{Name: "lan", Subnet: prefix("10.5.0.0/24"), Subnet6: prefix("fd00:5::/64")}},
		Links: []lab.Link{
			{
				A: "client", B: "web", Subnet: prefix("10.1.0.0/24"), Subnet6: prefix("fd00:1::/64"),
				AddressA: []netip.Addr{addr("10.1.0.7"), addr("fd00:1::7")}, AddressB: []netip.Addr{addr("10.1.0.8")}, AB: base, BA: base,
			},
			{A: "web", B: "db", Direct: true},
			{A: "db", B: "lan", AB: &qdisc.Netem{Loss: 1}},
		},
		Targets: []lab.TargetDefinition{
			{Name: "pg", Node: "db", Client: "client", Protocol: 6, Ports: []target.Ports{target.Port(5432)}, Proxy: "proxy"},
			{Name: "all", Node: "db", Ports: []target.Ports{target.Port(80), {First: 8000, Last: 8100}}, Link: "web-db"},
		},
	}
	if diff := cmp.Diff(want, f.definition(), compare); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := YAML(want)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
	var again file
	if err := format.Read("", text, &again).Err(); err != nil || cmp.Diff(want, again.definition(), compare) != "" {
		t.Errorf("%v (-want +got):\n%s\nof:\n%s", err, cmp.Diff(want, again.definition(), compare), text)
	}
}

// What is no lab is said in lines of one form; what is one is read back as it is written.
func FuzzParse(f *testing.F) {
	f.Add([]byte(shop))
	for _, name := range examples.Names() {
		text, _ := examples.Text(name)
		f.Add(text)
	}
	for _, m := range mistakes {
		f.Add([]byte(m.file))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := Parse(text, Source{Path: "shop.yaml", Folder: "/srv"})
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !lineForm.MatchString(line) {
					t.Errorf("not of the form: %q", line)
				}
			}
			return
		}
		again, err := YAML(d)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Parse(again, Source{})
		if diff := cmp.Diff(d, got, compare); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s\nof\n%s", err, diff, again)
		}
	})
}
