package wire

import (
	"net/netip"

	"google.golang.org/protobuf/types/known/timestamppb"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/feature"
	"netemd/internal/lab"
	"netemd/internal/target"
)

// Target translates t for a client.
func Target(t target.Target) *netemv1.Target {
	return &netemv1.Target{
		Name: t.Name, Lab: t.Lab, Node: t.Node, Address: text(t.Address), Proxy: text(t.Proxy), HttpProxy: text(t.HTTPProxy),
		ClientNamespace: t.ClientNamespace, ServerNamespace: t.ServerNamespace,
		To: place(t.To), From: place(t.From),
		Definition: Definition(t.Definition), Origin: string(t.Origin), Missing: t.Missing, Moves: t.Moves, Engines: enginePlacements(t.Engines),
	}
}

// text is empty for what is not valid.
func text[T interface {
	IsValid() bool
	String() string
}](v T) string {
	if !v.IsValid() {
		return ""
	}
	return v.String()
}

func place(p target.Place) *netemv1.Place {
	return &netemv1.Place{
		Namespace: p.Namespace, Device: p.Device, Index: int32(p.Index), Hook: string(p.Hook), Owned: p.Owned,
		Include: flows(p.Match.Include), Exclude: flows(p.Match.Exclude), Control: p.Match.Control,
	}
}

// TargetOf translates an answer. Text that is no address becomes the zero one:
// the agent made it.
func TargetOf(m *netemv1.Target) target.Target {
	t := target.Target{
		Name: m.GetName(), Lab: m.GetLab(), Node: m.GetNode(),
		ClientNamespace: m.GetClientNamespace(), ServerNamespace: m.GetServerNamespace(),
		To: placeOf(m.GetTo()), From: placeOf(m.GetFrom()),
		Origin: target.Origin(m.GetOrigin()), Missing: m.GetMissing(), Moves: m.GetMoves(), Engines: enginePlacementsOf(m.GetEngines()),
	}
	t.Definition, _ = DefinitionOf(m.GetDefinition())
	if p, err := target.ParseToxiproxy(t.Definition.Toxiproxy); err == nil {
		t.Toxiproxy = &p
	}
	t.Address, _ = netip.ParseAddrPort(m.GetAddress())
	t.Proxy, _ = netip.ParseAddrPort(m.GetProxy())
	t.HTTPProxy, _ = netip.ParseAddrPort(m.GetHttpProxy())
	return t
}

func placeOf(m *netemv1.Place) target.Place {
	return target.Place{
		Namespace: m.GetNamespace(), Device: m.GetDevice(), Index: int(m.GetIndex()), Hook: target.Hook(m.GetHook()), Owned: m.GetOwned(),
		Match: target.Match{Include: flowsOf(m.GetInclude()), Exclude: flowsOf(m.GetExclude()), Control: m.GetControl()},
	}
}

func flows(fs []target.Flow) []*netemv1.Flow {
	var ms []*netemv1.Flow
	for _, f := range fs {
		ms = append(ms, &netemv1.Flow{
			Protocol: uint32(f.Protocol), Source: text(f.Source), Destination: text(f.Destination),
			SourcePorts: ports(f.SourcePorts), DestinationPorts: ports(f.DestinationPorts),
			TcpFlagsSet: uint32(f.FlagsSet), TcpFlagsClear: uint32(f.FlagsClear),
			SourceCgroup: group(f.SourceCgroup), DestinationCgroup: group(f.DestinationCgroup),
		})
	}
	return ms
}

func flowsOf(ms []*netemv1.Flow) []target.Flow {
	var fs []target.Flow
	for _, m := range ms {
		f := target.Flow{
			Protocol: uint8(m.GetProtocol()), SourcePorts: portsOf(m.GetSourcePorts()), DestinationPorts: portsOf(m.GetDestinationPorts()),
			FlagsSet: uint8(m.GetTcpFlagsSet()), FlagsClear: uint8(m.GetTcpFlagsClear()),
			SourceCgroup: groupOf(m.GetSourceCgroup()), DestinationCgroup: groupOf(m.GetDestinationCgroup()),
		}
		f.Source, _ = netip.ParsePrefix(m.GetSource())
		f.Destination, _ = netip.ParsePrefix(m.GetDestination())
		fs = append(fs, f)
	}
	return fs
}

func group(c target.Cgroup) *netemv1.Cgroup {
	if c.Any() {
		return nil
	}
	return &netemv1.Cgroup{Path: c.Path, Id: c.ID, Level: int32(c.Level)}
}

func groupOf(m *netemv1.Cgroup) target.Cgroup {
	return target.Cgroup{Path: m.GetPath(), ID: m.GetId(), Level: int(m.GetLevel())}
}

func ports(p target.Ports) *netemv1.PortRange {
	if p.Any() {
		return nil
	}
	return &netemv1.PortRange{First: uint32(p.First), Last: uint32(p.Last)}
}

func portsOf(m *netemv1.PortRange) target.Ports {
	return target.Ports{First: uint16(m.GetFirst()), Last: uint16(m.GetLast())}
}

// Lab translates i for a client.
func Lab(i lab.Info) *netemv1.Lab {
	m := &netemv1.Lab{Name: i.Name, Targets: i.Targets, Up: timestamppb.New(i.Up), Held: i.Held}
	for _, n := range i.Nodes {
		node := &netemv1.LabNode{Name: n.Name, Namespace: n.Namespace}
		for _, a := range n.Addresses {
			node.Addresses = append(node.Addresses, a.String())
		}
		for _, s := range n.Services {
			node.Services = append(node.Services, LabService(s))
		}
		m.Nodes = append(m.Nodes, node)
	}
	return m
}

// LabService translates a service of a lab for a client.
func LabService(s lab.ServiceInfo) *netemv1.LabService {
	m := &netemv1.LabService{
		Name: s.Name, Kind: s.Kind, Pid: int32(s.PID), Address: text(s.Address), Log: s.Log, Status: s.Status,
	}
	if !s.Ended.IsZero() {
		m.Ended = timestamppb.New(s.Ended)
	}
	return m
}

// LabServiceOf translates an answer.
func LabServiceOf(m *netemv1.LabService) lab.ServiceInfo {
	s := lab.ServiceInfo{Name: m.GetName(), Kind: m.GetKind(), PID: int(m.GetPid()), Log: m.GetLog(), Status: m.GetStatus()}
	if m.GetEnded() != nil {
		s.Ended = m.GetEnded().AsTime()
	}
	s.Address, _ = netip.ParseAddrPort(m.GetAddress())
	return s
}

// LabOf translates an answer.
func LabOf(m *netemv1.Lab) lab.Info {
	i := lab.Info{Name: m.GetName(), Targets: m.GetTargets(), Up: m.GetUp().AsTime(), Held: m.GetHeld()}
	for _, n := range m.GetNodes() {
		node := lab.NodeInfo{Name: n.GetName(), Namespace: n.GetNamespace()}
		for _, a := range n.GetAddresses() {
			if p, err := netip.ParsePrefix(a); err == nil {
				node.Addresses = append(node.Addresses, p)
			}
		}
		for _, s := range n.GetServices() {
			node.Services = append(node.Services, LabServiceOf(s))
		}
		i.Nodes = append(i.Nodes, node)
	}
	return i
}

// Features translates r for a client.
func Features(r feature.Report) *netemv1.FeaturesResponse {
	m := &netemv1.FeaturesResponse{Kernel: r.Kernel, AutoEngine: engines.toProto(r.Auto), AutoReason: r.AutoReason}
	for _, f := range r.Features {
		m.Features = append(m.Features, &netemv1.Feature{Name: f.Name, State: string(f.State), Detail: f.Detail, Hint: f.Hint})
	}
	return m
}

// FeaturesOf translates an answer.
func FeaturesOf(m *netemv1.FeaturesResponse) (feature.Report, error) {
	r := feature.Report{Kernel: m.GetKernel(), AutoReason: m.GetAutoReason()}
	var err error
	if r.Auto, err = engines.fromProto("auto_engine", m.GetAutoEngine()); err != nil {
		return r, err
	}
	for _, f := range m.GetFeatures() {
		r.Features = append(r.Features, feature.Feature{
			Name: f.GetName(), State: feature.State(f.GetState()), Detail: f.GetDetail(), Hint: f.GetHint(),
		})
	}
	return r, nil
}
