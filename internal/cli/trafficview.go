package cli

import (
	"slices"
	"strings"

	"netemd/internal/fault"
	"netemd/internal/target"
)

// subject is what a fault is aimed at: a target's name, or a device.
func subject(s fault.Spec) string {
	if s.Selector != nil {
		return s.Selector.Name()
	}
	if s.Outage != nil {
		return s.TargetName()
	}
	return s.Target
}

// trafficView is a device and its traffic as JSON.
type trafficView struct {
	Device       string   `json:"device"`
	Namespace    string   `json:"netns"`
	Match        string   `json:"match"`
	Protocol     string   `json:"protocol"`
	TCPFlags     string   `json:"tcp_flags,omitempty"`
	Peers        []string `json:"dst"`
	PeerPorts    []string `json:"port"`
	Locals       []string `json:"src"`
	LocalPorts   []string `json:"src_port"`
	ExcludePeers []string `json:"exclude_dst"`
	ExcludePorts []string `json:"exclude_port"`
	Cgroup       string   `json:"cgroup,omitempty"`
	Control      bool     `json:"control"`
}

func viewTraffic(s target.Selector) *trafficView {
	return &trafficView{
		Device: s.Device, Namespace: s.Namespace, Match: traffic(s), Protocol: target.ProtocolName(s.Protocol),
		TCPFlags: target.FlagsText(s.FlagsSet, s.FlagsClear),
		Peers:    list(s.Peers), PeerPorts: portTexts(s.PeerPorts), Locals: list(s.Locals), LocalPorts: portTexts(s.LocalPorts),
		ExcludePeers: list(s.ExcludePeers), ExcludePorts: portTexts(s.ExcludePorts), Cgroup: s.Cgroup, Control: s.Control,
	}
}

// traffic says what of a device's packets is meant: "tcp dst example.org port 443".
func traffic(s target.Selector) string {
	text := strings.TrimPrefix(s.String(), s.Name())
	switch {
	case takesAll(s) && s.Control:
		text = "all packets" + text
	case takesAll(s):
		text = "all packets but ARP and neighbour discovery" + text
	}
	return strings.TrimSpace(text)
}

// takesAll reports whether s selects no flow, but a whole device, if with exceptions.
func takesAll(s target.Selector) bool {
	s.ExcludePeers, s.ExcludePorts, s.Control = nil, nil, false
	return s.String() == s.Name()
}

func portTexts(ps []target.Ports) []string {
	out := []string{}
	for _, p := range ps {
		out = append(out, p.String())
	}
	return out
}

// offloadView is a device's offloads as JSON: the features that were on, and those of
// them that are off while the fault lasts.
type offloadView struct {
	Namespace string   `json:"netns"`
	Device    string   `json:"device"`
	Before    []string `json:"before"`
	Off       []string `json:"off"`
}

func viewOffloads(os []fault.Offload) []offloadView {
	out := []offloadView{}
	for _, o := range os {
		out = append(out, offloadView{o.Namespace, o.Device, list(o.Before), list(o.Off)})
	}
	return out
}

// offloadText says a device's offloads: "v0@blue: on tso, gso; off while the fault
// lasts: gro".
func offloadText(o fault.Offload) string {
	name := target.Selector{Namespace: o.Namespace, Device: o.Device}.Name()
	on := slices.DeleteFunc(slices.Clone(o.Before), func(f string) bool { return slices.Contains(o.Off, f) })
	text := "none on"
	if len(on) > 0 {
		text = "on " + fault.FeatureNames(on)
	}
	if len(o.Off) > 0 {
		text += "; off while the fault lasts: " + fault.FeatureNames(o.Off)
	}
	return name + ": " + text
}

// deviceWay is a direction in a device's words.
func deviceWay(d fault.Direction) string {
	switch d {
	case fault.From:
		return "ingress"
	case fault.Both:
		return "egress and ingress"
	}
	return "egress"
}
