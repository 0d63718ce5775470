package wire

import (
	"math"
	"strconv"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

func trafficSelector(s target.Selector) *netemv1.TrafficSelector {
	return &netemv1.TrafficSelector{
		Namespace: s.Namespace, Device: s.Device, Protocol: uint32(s.Protocol), Peers: s.Peers, Locals: s.Locals,
		PeerPorts: portRanges(s.PeerPorts), LocalPorts: portRanges(s.LocalPorts),
		ExcludePeers: s.ExcludePeers, ExcludePorts: portRanges(s.ExcludePorts), Control: s.Control,
		TcpFlagsSet: uint32(s.FlagsSet), TcpFlagsClear: uint32(s.FlagsClear), Cgroup: s.Cgroup,
	}
}

// trafficSelectorOf refuses numbers that do not fit, which would select other packets
// if they were cut.
func trafficSelectorOf(m *netemv1.TrafficSelector) (*target.Selector, error) {
	if m.GetProtocol() > math.MaxUint8 {
		return nil, &qdisc.FieldError{Field: "protocol", Value: strconv.FormatUint(uint64(m.GetProtocol()), 10), Want: "an IP protocol number from 0 to 255"}
	}
	if flags := max(m.GetTcpFlagsSet(), m.GetTcpFlagsClear()); flags > math.MaxUint8 {
		return nil, &qdisc.FieldError{Field: "tcp-flags", Value: strconv.FormatUint(uint64(flags), 10), Want: "bits of a TCP header's flags, from 0 to 255"}
	}
	s := &target.Selector{
		Namespace: m.GetNamespace(), Device: m.GetDevice(), Protocol: uint8(m.GetProtocol()), Peers: m.GetPeers(), Locals: m.GetLocals(),
		ExcludePeers: m.GetExcludePeers(), Control: m.GetControl(),
		FlagsSet: uint8(m.GetTcpFlagsSet()), FlagsClear: uint8(m.GetTcpFlagsClear()), Cgroup: m.GetCgroup(),
	}
	for _, f := range []struct {
		name string
		dst  *[]target.Ports
		from []*netemv1.PortRange
	}{
		{"port", &s.PeerPorts, m.GetPeerPorts()}, {"src-port", &s.LocalPorts, m.GetLocalPorts()}, {"exclude-port", &s.ExcludePorts, m.GetExcludePorts()},
	} {
		for _, r := range f.from {
			if max(r.GetFirst(), r.GetLast()) > math.MaxUint16 {
				return nil, &qdisc.FieldError{Field: f.name, Value: strconv.FormatUint(uint64(max(r.GetFirst(), r.GetLast())), 10), Want: "ports from 1 to 65535"}
			}
			*f.dst = append(*f.dst, portsOf(r))
		}
	}
	return s, nil
}

func portRanges(ps []target.Ports) []*netemv1.PortRange {
	var ms []*netemv1.PortRange
	for _, p := range ps {
		ms = append(ms, &netemv1.PortRange{First: uint32(p.First), Last: uint32(p.Last)})
	}
	return ms
}

func offloads(os []fault.Offload) []*netemv1.Offload {
	var ms []*netemv1.Offload
	for _, o := range os {
		ms = append(ms, &netemv1.Offload{Namespace: o.Namespace, Device: o.Device, Before: o.Before, Off: o.Off})
	}
	return ms
}

func offloadsOf(ms []*netemv1.Offload) []fault.Offload {
	var os []fault.Offload
	for _, m := range ms {
		os = append(os, fault.Offload{Namespace: m.GetNamespace(), Device: m.GetDevice(), Before: m.GetBefore(), Off: m.GetOff()})
	}
	return os
}
