package labfile

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sound is the beginning of most files with a mistake.
const sound = `lab: shop
nodes:
  client: {}
  web: {forward: true}
  db: {services: [{name: postgres, kind: postgres, port: 5432}]}
switches: {lan: {}}
links:
  - {a: client, b: web}
  - {a: web, b: db}
`

// node is a file whose node web has what is given, from column 8 of line 4 on.
func withNode(what string) string {
	return strings.Replace(sound, "web: {forward: true}", "web: {forward: true, "+what+"}", 1)
}

// withService has a service of web, whose keys begin at 4:45.
func withService(what string) string { return withNode("services: [{name: api, " + what + "}]") }

// mistakes are files with one mistake each, and what is said of it: all of the line behind
// "shop.yaml:".
var mistakes = []struct{ what, file, want string }{
	{"no YAML", "lab: [\n", `1:6: file: is not YAML: `},
	{"a tab", "lab: shop\nnodes:\n\tclient: {}\n", `3:1: file: is not YAML: `},
	{"a list", "- lab\n", `1:1: file: is a list, want keys: lab, nodes, switches, links, targets`},
	{"nothing", "", `1:1: lab: is missing, want a name, such as shop: 1 to 32 of a-z, 0-9 and '-', not at the ends`},
	{"no name", "nodes: {a: {}}\n", `1:1: lab: is missing, want a name, such as shop: 1 to 32 of a-z, 0-9 and '-', not at the ends`},
	{"no nodes", "lab: shop\n", `1:1: nodes: is missing, want NAME: {keys of a node}, such as web: {} or web: {forward: true}`},
	{"a mark of UTF-8", "\ufefflab: shop\n", `1:1: nodes: is missing, want NAME: {keys of a node}, such as web: {} or web: {forward: true}`},
	{"two documents", sound + "---\nlab: x\n", `10:1: file: has several documents, want one`},
	{"an anchor", "lab: &x shop\nnodes: {a: {}}\n", `1:6: file: has an anchor, alias or merged key, want each value where it is used; what begins with '*' or '&' stands in quotes`},
	{"a tag", "lab: !!str shop\nnodes: {a: {}}\n", `1:6: file: has a tag, want none: what kind of value a key has is known; what begins with '!' stands in quotes`},
	{"an unknown key", sound + "link: []\n", `10:1: link: is an unknown key, want one of lab, nodes, switches, links, targets`},
	{"a key twice", sound + "lab: other\n", `10:1: lab: is there already, at 1:1, want it once`},
	{"a node twice", strings.Replace(sound, "  db:", "  client: {}\n  db:", 1), `5:3: nodes.client: is there already, at 3:3, want it once`},
	{"an empty section", sound + "targets:\n", `10:1: targets: is empty, want NAME: {node: ..., port: ...}, such as pg: {node: db, port: 5432}`},
	{"a list of nodes", "lab: shop\nnodes: [client, web]\n", `2:1: nodes: is a list where a mapping stands, want NAME: {keys of a node}, such as web: {} or web: {forward: true}`},
	{"a node without keys", "lab: shop\nnodes: {client: }\n", `2:9: nodes.client: is empty, want NAME: {keys of a node}, such as web: {} or web: {forward: true}`},
	{"a node's unknown key", withNode("sysctl: {a: 1}"), `4:24: nodes.web.sysctl: is an unknown key, want one of forward, sysctls, routes, services`},
	{"yes for true", strings.Replace(sound, "forward: true", "forward: yes", 1), `4:9: nodes.web.forward: "yes" is not valid, want true or false`},
	{"sysctls as a list", withNode("sysctls: [net.core.somaxconn=1]"), `4:24: nodes.web.sysctls: is a list where a mapping stands, want NAME: VALUE of settings below net., such as net.ipv4.tcp_syn_retries: 3`},
	{"a route without via", withNode("routes: [{to: 10.9.0.0/16}]"), `4:33: nodes.web.routes[0].via: is missing, want a node that shares a link or a switch with this one, or an address`},
	{"a route to a host in a net", withNode("routes: [{to: 10.9.0.1/16, via: db}]"), `4:34: nodes.web.routes[0].to: "10.9.0.1/16" is not valid: bits of the host are set, the subnet is 10.9.0.0/16, want a network as ADDRESS/BITS, such as 10.9.0.0/16 or 0.0.0.0/0`},
	{"a route by a node that is not there", withNode("routes: [{to: 10.9.0.0/16, via: dbb}]"), `4:51: nodes.web.routes[0].via: "dbb" is not there (did you mean db?), want a node of the lab: client, web, db`},
	{"a service without a name", withNode("services: [{kind: postgres, port: 5432}]"), `4:35: nodes.web.services[0].name: is missing, want a name, once in the lab, such as api`},
	{"a command as a text", withService("command: ./api --port 8080"), `4:47: nodes.web.services[0].command: is "./api --port 8080" where a list stands, want a list of the program and its arguments, such as [./api, --port, "8080"]`},
	{"an argument that is a list", withService("command: [./api, [x]]"), `4:64: nodes.web.services[0].command[1]: is a list, want a list of the program and its arguments, such as [./api, --port, "8080"]`},
	{"a port too large", withService("kind: http-echo, port: 65536"), `4:64: nodes.web.services[0].port: "65536" is not valid, want a port from 1 to 65535`},
	{"a port with a name", withService("kind: http-echo, port: http"), `4:64: nodes.web.services[0].port: "http" is not valid, want a port from 1 to 65535`},
	{"a time without a unit", withService("command: [./api], ready_timeout: 30"), `4:65: nodes.web.services[0].ready_timeout: "30" is not valid, want the time in which it has to be ready, such as 60s; without it 30s, of postgres 3m`},
	{"readiness as a port", withService("command: [./api], ready: 8080"), `4:65: nodes.web.services[0].ready: is "8080" where a mapping stands, want one of {tcp: PORT}, {http: URL} and {command: [PROGRAM, ARGUMENT...]}, or the key left out`},
	{"readiness of another kind", withService("command: [./api], ready: {udp: 53}"), `4:73: nodes.web.services[0].ready.udp: is an unknown key, want one of tcp, http, command`},
	{"a variable without a value", withService("command: [./api], environment: {A: }"), `4:79: nodes.web.services[0].environment.A: is empty, want NAME: VALUE, such as LOG_LEVEL: debug`},
	{"an API of another kind", withService("kind: http-echo, port: 80, api: 8474"), `4:74: nodes.web.services[0].api: "8474" is for services of kind toxiproxy, want the key left out`},
	{"an API at the proxy's port", withService("kind: toxiproxy, port: 80, upstream: db:5432, api: 80"), `4:93: nodes.web.services[0].api: "80" is another service's of the node, or its own, want another port`},
	{"an upstream that is not there", withService("kind: toxiproxy, port: 80, upstream: dv:5432"), `4:74: nodes.web.services[0].upstream: "dv" is not there, want a node of the lab: client, web, db`},
	{"a primary that is not there", withService("kind: postgres, port: 80, replica_of: postgre"), `4:73: nodes.web.services[0].replica_of: "postgre" is not there (did you mean postgres?), want a service of the lab: api, postgres`},
	{"a switch's unknown key", strings.Replace(sound, "lan: {}", "lan: {stp: true}", 1), `6:18: switches.lan.stp: is an unknown key, want one of subnet, subnet6`},
	{"a switch's subnet", strings.Replace(sound, "lan: {}", "lan: {subnet: 10.5.0.0}", 1), `6:18: switches.lan.subnet: "10.5.0.0" is not valid, want a subnet as ADDRESS/BITS with the bits behind it zero, such as 10.1.0.0/24 or fd00:1::/64`},
	{"a link with one end", sound + "  - {a: web}\n", `10:5: links[2].b: is missing, want the name of a node or switch`},
	{"a link as a text", sound + "  - web-db\n", `10:5: links[2]: is "web-db" where a mapping stands, want a link, such as {a: client, b: web}`},
	{"an end that is not there", sound + "  - {a: web, b: clinet}\n", `10:14: links[2].b: "clinet" is not there (did you mean client?), want a node or switch of the lab: client, web, db, lan`},
	{"a subnet with bits of a host", sound + "  - {a: web, b: lan, subnet: 10.1.0.1/24}\n", `10:22: links[2].subnet: "10.1.0.1/24" is not valid: bits of the host are set, the subnet is 10.1.0.0/24, want a subnet as ADDRESS/BITS with the bits behind it zero, such as 10.1.0.0/24 or fd00:1::/64`},
	{"an address that is none", sound + "  - {a: web, b: db, address_a: 10.1.0}\n", `10:21: links[2].address_a: "10.1.0" is not valid, want an address in the link's subnet, such as 10.1.0.1, or a list of such`},
	{"a zone", sound + "  - {a: web, b: db, address_a: [10.1.0.1, \"fe80::1%eth0\"]}\n", `10:43: links[2].address_a[1]: "fe80::1%eth0" is not valid: has a zone, want an address in the link's subnet, such as 10.1.0.1, or a list of such`},
	{"a wire that is a number", sound + "  - {a: web, b: db, wire: 0}\n", `10:21: links[2].wire: "0" is not valid, want true or false; true is the default`},
	{"a delay without a unit", sound + "  - {a: web, b: db, impairment: {delay: 10}}\n", `10:34: links[2].impairment.delay: "10" is not valid, want a duration of 0s or more with its unit, such as 100ms, 1.5s or 10m`},
	{"a loss without a sign", sound + "  - {a: web, b: db, impairment: {loss: 0.1}}\n", `10:34: links[2].impairment.loss: "0.1" is not valid, want a percentage from 0% to 100%, such as 20%`},
	{"an impairment's unknown key", sound + "  - {a: web, b: db, impairment: {latency: 10ms}}\n", `10:34: links[2].impairment.latency: is an unknown key, want one of loss, loss_correlation, `},
	{"an impairment that is none", sound + "  - {a: web, b: db, impairment: {limit: 10}}\n", `10:21: links[2].impairment: impairs nothing, want an impairment, such as {delay: 10ms, loss: 1%} or "delay 10ms loss 1%", or the key left out`},
	{"jitter without a delay", sound + "  - {a: web, b: db, a_to_b: {jitter: 10ms}}\n", `10:30: links[2].a_to_b.jitter: "10ms" is not valid, want a delay that it varies, such as delay 100ms with jitter 20ms`},
	{"words that tc has not", sound + "  - {a: web, b: db, b_to_a: delay ten}\n", `10:21: links[2].b_to_a: "delay ten" is not valid`},
	{"both and one direction", sound + "  - {a: web, b: db, impairment: loss 1%, a_to_b: loss 2%}\n", `10:42: links[2].a_to_b: stands beside impairment, want impairment for both directions, or a_to_b and b_to_a`},
	{"a target without a node", sound + "targets: {pg: {port: 5432}}\n", `10:11: targets.pg.node: is missing, want the name of a node`},
	{"a target of a node that is not there", sound + "targets: {pg: {node: bd, port: 5432}}\n", `10:16: targets.pg.node: "bd" is not there, want a node of the lab: client, web, db`},
	{"a range that goes down", sound + "targets: {pg: {node: db, port: 90-80}}\n", `10:26: targets.pg.port: "90-80" is not valid, want a port from 1 to 65535 or a range of them, such as 5432 or 8000-8100, or a list of such`},
	{"a protocol without a name", sound + "targets: {pg: {node: db, protocol: tpc, port: 80}}\n", `10:26: targets.pg.protocol: "tpc" is not valid, want tcp, udp, icmp, icmpv6, sctp or an IP protocol number from 1 to 255`},
	{"a lab's name", strings.Replace(sound, "lab: shop", "lab: My Shop", 1), `1:1: lab: "My Shop" is not valid, want 1 to 32 of a-z, 0-9 and '-', not at the ends`},
	{"a node's name", strings.Replace(sound, "  client: {}", "  client: {}\n  eu.west: {}", 1), `4:3: nodes."eu.west": "eu.west" is not valid, want 1 to 32 of a-z, 0-9 and '-', not at the ends`},
	{"a name that is reserved", strings.Replace(sound, "  client: {}", "  client: {}\n  wire2: {}", 1), `4:3: nodes.wire2: "wire2" is not valid, want another name: `},
	{"a switch with a node's name", strings.Replace(sound, "lan: {}", "db: {}", 1), `6:12: switches.db: "db" is there twice`},
	{"a kind that is not known", withService("kind: mysql, port: 3306"), `4:47: nodes.web.services[0].kind: "mysql" is not valid, want command, postgres, toxiproxy, http-proxy, echo, http-echo, grpc-echo, payment`},
	{"no command", withService("ready: {tcp: 80}"), `4:35: nodes.web.services[0].command: is missing, want a program with its arguments, such as [./api, --port, "8080"], or a kind: postgres, toxiproxy, http-proxy, echo, http-echo, grpc-echo, payment`},
	{"no port", withService("kind: http-echo"), `4:35: nodes.web.services[0].port: is missing, want a port from 1 to 65535`},
	{"a port twice", withService("kind: http-echo, port: 80}, {name: other, kind: http-echo, port: 80"), `4:106: nodes.web.services[1].port: "80" is another service's of the node`},
	{"a service twice", withService("kind: http-echo, port: 80}, {name: postgres, kind: http-echo, port: 81"), `5:19: nodes.db.services[0]: "postgres" is there twice in the lab, want a name of its own`},
	{"a user of a built-in kind", withService("kind: http-echo, port: 80, user: nobody"), `4:74: nodes.web.services[0].user: "nobody" is for services of kind command`},
	{"two kinds of readiness", withService("command: [./api], ready: {tcp: 80, http: \"http://127.0.0.1\"}"), `4:65: nodes.web.services[0].ready: is not valid, want one of tcp, http and command`},
	{"readiness that is no URL", withService("command: [./api], ready: {http: localhost}"), `4:73: nodes.web.services[0].ready.http: "localhost" is not valid, want a URL, such as http://127.0.0.1:8080/health`},
	{"a setting outside net", withNode("sysctls: {kernel.panic: 1}"), `4:34: nodes.web.sysctls."kernel.panic": "kernel.panic" is not valid, want a name that begins with net., such as net.ipv4.tcp_syn_retries`},
	{"a standby of what is none", withService("kind: postgres, port: 5432, replica_of: api"), `4:75: nodes.web.services[0].replica_of: "api" is not valid, want a service of kind postgres that is no replica itself`},
	{"a link to itself", sound + "  - {a: web, b: web}\n", `10:14: links[2].b: "web" is not valid, want another node than that of a`},
	{"a link of two switches", strings.Replace(sound, "lan: {}", "lan: {}, wan: {}", 1) + "  - {a: lan, b: wan}\n", `10:14: links[2].b: "wan" is not valid, want a node: two switches are joined by a node that forwards`},
	{"a subnet of a link at a switch", sound + "  - {a: web, b: lan, subnet: 10.1.0.0/24}\n", `10:22: links[2].subnet: "10.1.0.0/24" is not the link's, which is in the network of switch lan, want the key left out, or the subnet of the switch`},
	{"subnets that overlap", strings.Replace(strings.Replace(sound, "b: web}", "b: web, subnet: 10.1.0.0/16}", 1), "b: db}", "b: db, subnet: 10.1.2.0/24}", 1), `9:21: links[1].subnet: "10.1.2.0/24" overlaps`},
	{"a subnet that is too small", strings.Replace(sound, "b: db}", "b: db, subnet: 10.1.2.0/31}", 1), `9:21: links[1].subnet: "10.1.2.0/31" is not valid, want `},
	{"IPv4 for IPv6", strings.Replace(sound, "b: db}", "b: db, subnet6: 10.1.2.0/24}", 1), `9:21: links[1].subnet6: "10.1.2.0/24" is not valid, want a network of IPv6, beside one of IPv4`},
	{"an address outside its subnet", strings.Replace(sound, "b: db}", "b: db, subnet: 10.1.2.0/24, address_b: 10.1.3.2}", 1), `9:42: links[1].address_b: "10.1.3.2" is not valid, want an address in 10.1.2.0/24, neither its first nor its last`},
	{"an address twice", strings.Replace(sound, "b: db}", "b: db, subnet: 10.1.2.0/24, address_a: 10.1.2.9, address_b: 10.1.2.9}", 1), `9:63: links[1].address_b: "10.1.2.9" is web's already`},
	{"no way to a target", strings.Replace(sound, "{forward: true}", "{}", 1) + "targets: {pg: {node: db, client: client, port: 5432}}\n", `10:26: targets.pg.client: `},
	{"whose client is not clear", sound + "targets: {web: {node: web, port: 80}}\n", `10:11: targets.web.client: `},
	{"a link that is not on the way", sound + "targets: {pg: {node: db, client: web, port: 5432, link: client-web}}\n", `10:51: targets.pg.link: "client-web" is not valid, want a link of node db, or one on the way to it: web-db`},
	{"a port of a protocol without", sound + "targets: {pg: {node: db, protocol: icmp, port: 5432}}\n", `10:26: targets.pg.protocol: "icmp" is not valid, want tcp, udp or another protocol that has ports, beside a port`},
	{"a way by nobody near", withNode("routes: [{to: 10.9.0.0/16, via: web}]"), `4:51: nodes.web.routes[0].via: "web" is not valid, want `},
	{"a proxy that is not there", sound + "targets: {pg: {node: db, port: 80, proxy: p}}\n", `10:36: targets.pg.proxy: "p" is not there, want a toxiproxy service of the lab, which has none`},
}

// lineForm is that of every line of every error.
var lineForm = regexp.MustCompile(`^shop\.yaml(:\d+:\d+)?: \S.*: .+, want .+\n?$`)

func TestMistakes(t *testing.T) {
	if len(mistakes) < 50 {
		t.Errorf("%d files", len(mistakes))
	}
	var all strings.Builder
	for _, m := range mistakes {
		_, err := Parse([]byte(m.file), Source{Path: "shop.yaml", Folder: "/srv"})
		if err == nil {
			t.Errorf("%s: no mistake", m.what)
			continue
		}
		fmt.Fprintf(&all, "%s\n", m.what)
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintf(&all, "    %s\n", strings.TrimSuffix(line, "\n"))
			if !lineForm.MatchString(line) {
				t.Errorf("%s: not of the form: %s", m.what, line)
			}
		}
		want := "shop.yaml:" + m.want
		if first, _, _ := strings.Cut(err.Error(), "\n"); !strings.HasPrefix(first, want) {
			t.Errorf("%s:\n got %s\nwant %s", m.what, first, want)
		}
		var mistake *strictyaml.Mistake
		if !errors.As(err, &mistake) || !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s: %T is no mistake", m.what, err)
		}
	}
	path := filepath.Join("testdata", "mistakes.golden")
	if *update {
		if err := os.WriteFile(path, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), all.String()); diff != "" {
		t.Errorf("(-golden +got):\n%s", diff)
	}
}
