// Package labfile is labs as YAML: a lab.Definition of a text, with line and column of all
// that is wrong, the text of a Definition, the schema of such texts, and the labs that are
// built in.
package labfile

import (
	"net/netip"
	"time"

	"netemd/internal/impairment"
	"netemd/internal/strictyaml"
	"netemd/internal/target"
	"netemd/internal/testbed/settings"
)

// file is a lab as its file says it; lab.Definition says what the keys mean.
type file struct {
	Lab      string                       `yaml:"lab" strict:"required" want:"a name, such as shop: 1 to 32 of a-z, 0-9 and '-', not at the ends"`
	Nodes    strictyaml.Named[node]       `yaml:"nodes" strict:"required" want:"NAME: {keys of a node}, such as web: {} or web: {forward: true}"`
	Switches strictyaml.Named[network]    `yaml:"switches,omitempty" want:"NAME: {subnet: ..., subnet6: ...}, such as lan: {} or lan: {subnet: 10.5.0.0/24}"`
	Links    []link                       `yaml:"links,omitempty"`
	Targets  strictyaml.Named[definition] `yaml:"targets,omitempty" want:"NAME: {node: ..., port: ...}, such as pg: {node: db, port: 5432}"`
}

type node struct {
	Forward  bool                      `yaml:"forward,omitempty"`
	Sysctls  strictyaml.Named[setting] `yaml:"sysctls,omitempty" want:"NAME: VALUE of settings below net., such as net.ipv4.tcp_syn_retries: 3"`
	Routes   []route                   `yaml:"routes,omitempty"`
	Services []service                 `yaml:"services,omitempty"`
}

// setting is the value of a sysctl: several numbers are one text.
type setting string

// WantYAML is the form, after "want".
func (setting) WantYAML() string { return "a value, such as 3 or \"4096 131072 6291456\"" }

type route struct {
	To  netip.Prefix `yaml:"to" strict:"required" want:"a network as ADDRESS/BITS, such as 10.9.0.0/16 or 0.0.0.0/0"`
	Via string       `yaml:"via" strict:"required" want:"a node that shares a link or a switch with this one, or an address"`
}

// WantYAML is the form, after "want".
func (route) WantYAML() string { return "a route: {to: NETWORK, via: NODE or ADDRESS}" }

type network struct {
	Subnet  netip.Prefix `yaml:"subnet,omitempty"`
	Subnet6 netip.Prefix `yaml:"subnet6,omitempty" want:"a subnet of IPv6, such as fd00:1::/64"`
}

type link struct {
	A          string `yaml:"a" strict:"required" want:"the name of a node or switch"`
	B          string `yaml:"b" strict:"required" want:"the name of a node or switch"`
	network    `yaml:",inline"`
	AddressA   strictyaml.Several[netip.Addr] `yaml:"address_a,omitempty" want:"an address in the link's subnet, such as 10.1.0.1, or a list of such"`
	AddressB   strictyaml.Several[netip.Addr] `yaml:"address_b,omitempty" want:"an address in the link's subnet, such as 10.1.0.2, or a list of such"`
	Wire       *bool                          `yaml:"wire,omitempty" want:"true or false; true is the default"`
	Impairment *impairment.Keys               `yaml:"impairment,omitempty"`
	AB         *impairment.Keys               `yaml:"a_to_b,omitempty"`
	BA         *impairment.Keys               `yaml:"b_to_a,omitempty"`
}

// WantYAML is the form, after "want".
func (link) WantYAML() string { return "a link, such as {a: client, b: web}" }

type service struct {
	Name string `yaml:"name" strict:"required" want:"a name, once in the lab, such as api"`
	Kind string `yaml:"kind,omitempty" want:"command, postgres, toxiproxy, http-proxy, echo, http-echo, grpc-echo, payment or http-tier"`
	Port port   `yaml:"port,omitempty"`
	// Upstream is of a toxiproxy, an http-proxy or a payment, API of a toxiproxy, ReplicaOf of a postgres, the rest but Name of commands.
	Upstream     string                     `yaml:"upstream,omitempty" want:"NODE:PORT or ADDRESS:PORT, such as db:5432"`
	API          port                       `yaml:"api,omitempty"`
	Settings     *settings.Keys             `yaml:"settings,omitempty"`
	ReplicaOf    string                     `yaml:"replica_of,omitempty" want:"the name of the postgres service that it is a standby of"`
	Command      []string                   `yaml:"command,omitempty" strict:"empty,block" want:"a list of the program and its arguments, such as [./api, --port, \"8080\"]"`
	User         string                     `yaml:"user,omitempty" want:"the name of a user of this host"`
	Directory    string                     `yaml:"directory,omitempty" want:"the path of a folder"`
	Environment  strictyaml.Named[variable] `yaml:"environment,omitempty" strict:"empty" want:"NAME: VALUE, such as LOG_LEVEL: debug"`
	Ready        ready                      `yaml:"ready,omitempty"`
	ReadyTimeout time.Duration              `yaml:"ready_timeout,omitempty" want:"the time in which it has to be ready, such as 60s; without it 30s, of postgres 3m"`
	Log          string                     `yaml:"log,omitempty" want:"the path of a file"`
}

// WantYAML is the form, after "want".
func (service) WantYAML() string {
	return "a service, such as {name: api, command: [./api]} or {name: db, kind: postgres, port: 5432}"
}

// variable is the value of an environment's variable.
type variable string

// WantYAML is the form, after "want".
func (variable) WantYAML() string { return "a text, such as debug" }

type ready struct {
	TCP     port     `yaml:"tcp,omitempty"`
	HTTP    string   `yaml:"http,omitempty" want:"a URL inside the node, such as http://127.0.0.1:8080/healthz"`
	Command []string `yaml:"command,omitempty" strict:"empty,block" want:"a list of the program and its arguments"`
}

// WantYAML is the form, after "want".
func (ready) WantYAML() string {
	return "one of {tcp: PORT}, {http: URL} and {command: [PROGRAM, ARGUMENT...]}, or the key left out"
}

type definition struct {
	Node      string                           `yaml:"node" strict:"required" want:"the name of a node"`
	Client    string                           `yaml:"client,omitempty" want:"the name of the node that its clients run in"`
	Protocol  target.Protocol                  `yaml:"protocol,omitempty" want:"tcp, udp, icmp, icmpv6, sctp or an IP protocol number from 1 to 255"`
	Port      strictyaml.Several[target.Ports] `yaml:"port,omitempty" want:"a port from 1 to 65535 or a range of them, such as 5432 or 8000-8100, or a list of such"`
	Proxy     string                           `yaml:"proxy,omitempty" want:"the name of a toxiproxy service of the node"`
	HTTPProxy string                           `yaml:"http_proxy,omitempty" want:"the name of an http-proxy service of the node"`
	Link      string                           `yaml:"link,omitempty" want:"A-B, the two ends of a link"`
}

// port is one port.
type port uint16

// WantYAML is the form, after "want".
func (port) WantYAML() string { return "a port from 1 to 65535" }
