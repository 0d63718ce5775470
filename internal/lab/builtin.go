package lab

import (
	"net/netip"
	"slices"

	"netemd/internal/target"
)

// Builtins returns the labs that need no description, by name.
func Builtins() []Definition { return []Definition{pg()} }

// Builtin returns the built-in lab of that name.
func Builtin(name string) (Definition, bool) {
	all := Builtins()
	i := slices.IndexFunc(all, func(d Definition) bool { return d.Name == name })
	if i < 0 {
		return Definition{}, false
	}
	return all[i], true
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
