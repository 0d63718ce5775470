package wire

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Definition translates d; nil for one that says nothing, as of a lab's target.
func Definition(d target.Definition) *netemv1.TargetDefinition {
	if d.Kind() == "" {
		return nil
	}
	return &netemv1.TargetDefinition{
		Name: d.Name, Container: d.Container, Pid: int32(d.PID), Host: d.Host, Cgroup: d.Cgroup, Unit: d.Unit, Toxiproxy: d.Toxiproxy,
		AddressIn: text(d.AddressIn), Device: d.Device, Namespace: d.Namespace, Protocol: uint32(d.Protocol), Ports: portRanges(d.Ports),
	}
}

// DefinitionOf translates a request, and refuses numbers that do not fit: what was cut would
// be another target.
func DefinitionOf(m *netemv1.TargetDefinition) (target.Definition, error) {
	d := target.Definition{
		Name: m.GetName(), Container: m.GetContainer(), PID: int(m.GetPid()), Host: m.GetHost(), Cgroup: m.GetCgroup(), Unit: m.GetUnit(), Toxiproxy: m.GetToxiproxy(),
		Device: m.GetDevice(), Namespace: m.GetNamespace(), Protocol: target.Protocol(m.GetProtocol()),
	}
	if m.GetProtocol() > math.MaxUint8 {
		return d, &qdisc.FieldError{Field: "protocol", Value: strconv.FormatUint(uint64(m.GetProtocol()), 10), Want: "an IP protocol number from 0 to 255"}
	}
	if s := m.GetAddressIn(); s != "" {
		var err error
		if d.AddressIn, err = netip.ParsePrefix(s); err != nil {
			return d, &qdisc.FieldError{Field: "address_in", Value: s, Want: "a prefix, such as 198.51.100.0/24"}
		}
	}
	for _, p := range m.GetPorts() {
		if p.GetFirst() > math.MaxUint16 || p.GetLast() > math.MaxUint16 {
			return d, &qdisc.FieldError{Field: "port", Value: fmt.Sprintf("%d-%d", p.GetFirst(), p.GetLast()), Want: "ports from 1 to 65535"}
		}
		d.Ports = append(d.Ports, portsOf(p))
	}
	return d, nil
}

func enginePlacements(all []target.EnginePlacement) []*netemv1.EnginePlacement {
	var ms []*netemv1.EnginePlacement
	for _, p := range all {
		ms = append(ms, &netemv1.EnginePlacement{Engine: engines.toProto(fault.Engine(p.Engine)), To: p.To, From: p.From, Unavailable: p.Unavailable})
	}
	return ms
}

// enginePlacementsOf leaves out an engine that this client does not know.
func enginePlacementsOf(ms []*netemv1.EnginePlacement) []target.EnginePlacement {
	var all []target.EnginePlacement
	for _, m := range ms {
		if e, err := engines.fromProto("engine", m.GetEngine()); err == nil {
			all = append(all, target.EnginePlacement{Engine: string(e), To: m.GetTo(), From: m.GetFrom(), Unavailable: m.GetUnavailable()})
		}
	}
	return all
}
