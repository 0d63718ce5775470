package lab

import (
	"net/netip"

	"netemd/internal/target"
)

// Builtin is the lab pg as internal/lab/examples has it, which this package cannot read.
func Builtin(name string) (Definition, bool) {
	if name != "pg" {
		return Definition{}, false
	}
	return pg(), true
}

// pg is a client, a wire and a server with a real PostgreSQL and a proxy before it.
func pg() Definition {
	const tcp, postgresPort, proxyPort = 6, 5432, 15432
	return Definition{
		Name: "pg",
		Nodes: []Node{
			{Name: "client"},
			{Name: "server", Services: []ServiceDefinition{
				{Name: "postgres", Kind: KindPostgres, Port: postgresPort},
				{Name: "proxy", Kind: KindToxiproxy, Port: proxyPort, Upstream: "server:5432"},
			}},
		},
		Links: []Link{{A: "client", B: "server", Subnet: netip.MustParsePrefix("10.77.0.0/24")}},
		Targets: []TargetDefinition{
			{Name: "pg", Node: "server", Client: "client", Protocol: tcp, Ports: []target.Ports{target.Port(postgresPort)}, Proxy: "proxy"},
		},
	}
}
