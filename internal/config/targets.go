package config

import (
	"fmt"
	"net/netip"
	"strconv"

	"netemd/internal/strictyaml"
	"netemd/internal/target"
)

// maxTargets is how many targets the file may name.
const maxTargets = 1024

// Target is what a name stands for: one of Container, PID, Host, Cgroup, Unit, Toxiproxy, AddressIn,
// Device and Namespace, as target.Definition says.
type Target struct {
	Container string       `yaml:"container,omitempty" want:"a container's name or the beginning of its id"`
	PID       int          `yaml:"pid,omitempty" want:"the number of a process, 1 or more"`
	Host      string       `yaml:"host,omitempty" want:"an address or a host name"`
	Cgroup    string       `yaml:"cgroup,omitempty" want:"the path of a cgroup below the root of its hierarchy, such as /payments/api"`
	Unit      string       `yaml:"unit,omitempty" want:"the name of a systemd unit, such as postgresql.service"`
	Toxiproxy string       `yaml:"toxiproxy,omitempty" want:"a proxy of a Toxiproxy that runs already, such as redis@127.0.0.1:8474"`
	AddressIn netip.Prefix `yaml:"address_in,omitempty" want:"a prefix, such as 198.51.100.0/24"`
	Device    string       `yaml:"device,omitempty" want:"the name of a device, such as eth0"`
	// Namespace is a name, a path or pid:N.
	Namespace string                           `yaml:"netns,omitempty" want:"a network namespace: its name, the path of its file, or pid:4711"`
	Protocol  target.Protocol                  `yaml:"protocol,omitempty" want:"tcp, udp, icmp, icmpv6, sctp or an IP protocol number from 1 to 255"`
	Port      strictyaml.Several[target.Ports] `yaml:"port,omitempty" want:"a port from 1 to 65535 or a range of them, such as 5432 or 8000-8100, or a list of these"`
}

// Definition is t under its name.
func (t Target) Definition(name string) target.Definition {
	return target.Definition{
		Name: name, Container: t.Container, PID: t.PID, Host: t.Host, Cgroup: t.Cgroup, Unit: t.Unit, Toxiproxy: t.Toxiproxy,
		AddressIn: t.AddressIn, Device: t.Device, Namespace: t.Namespace, Protocol: t.Protocol, Ports: t.Port,
	}
}

// Definitions are the targets that the file names.
func (c Config) Definitions() []target.Definition {
	var all []target.Definition
	for _, e := range c.Targets {
		all = append(all, e.Value.Definition(e.Name))
	}
	return all
}

func (v *validation) targets(all strictyaml.Named[Target]) {
	if len(all) > maxTargets {
		v.refuse("targets", "", "has "+strconv.Itoa(len(all)), fmt.Sprintf("at most %d", maxTargets))
		return
	}
	for _, e := range all {
		at := "targets." + strictyaml.Word(e.Name)
		mistakes, _ := strictyaml.Of(e.Value.Definition(e.Name).Validate())
		for _, m := range mistakes {
			switch m.Key {
			case "name", "target": // of it as a whole
				m.Key = at
			default:
				m.Key = at + "." + m.Key
			}
			v.mistakes = append(v.mistakes, m)
		}
	}
}
