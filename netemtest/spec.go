package netemtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// Direction is said from the target's side.
type Direction = fault.Direction

// The directions of a packet fault: To are the packets that go to the target, the default;
// From those that come from it.
const (
	To   = fault.To
	From = fault.From
	Both = fault.Both
)

// Spec is a fault. Exactly one of Netem, Rule, Toxics, Outage and Request is given.
type Spec struct {
	// Target is a target's name: of the test's own labs first, then of the session's, then
	// of the agent's; or what else netemctl's --target takes.
	Target string
	// Device, instead of a Target, is a network device, in the network namespace Namespace,
	// or the agent's own for an empty one. Flow says which of its packets, empty: all.
	Device, Namespace string
	Flow              Flow
	// Direction of a packet fault; empty means To, which at a device is its egress.
	Direction Direction
	// Netem impairs all packets.
	Netem qdisc.Netem
	// Rule acts on exactly the packets that it chooses.
	Rule Rule
	// Toxics act on the connections through the target's proxy (Network.Proxy).
	Toxics []ToxicSpec
	// Outage makes services of labs fail, instead of a Target or a Device.
	Outage *Outage
	// Request acts on the requests through the target's http-proxy (Network.HTTPProxy).
	Request RequestSpec
	// Engine is "netem" or "ebpf"; empty takes netem where the kernel has it, unless there is
	// a Rule.
	Engine string
	// OffloadOff switches segmentation offload off on the path while the fault stands, so
	// that packets are lost one by one and not 64 KB at a time.
	OffloadOff bool
	// Repair puts the fault back into force when somebody else changed or removed it.
	Repair bool
	// Wait is how long to wait for another's fault that is in the way; 0 means until shortly
	// before the test's deadline, and less than 0 not at all.
	Wait time.Duration
}

// Flow selects packets of a device. The zero value selects all.
type Flow struct {
	// Protocol is "tcp", "udp", "icmp" and so on; empty is any.
	Protocol string
	// Peers are addresses, prefixes or host names at the far end, seen from the device, and
	// Ports are ports there, such as "5432" or "8000-8100". To are the packets that go there.
	Peers, Ports []string
}

// Rule chooses packets by what they are, the same ones each time; on the ebpf engine.
type Rule struct {
	// Packets is what 'netemctl drop' takes: "syn", "synack", "fin", "rst", "data:3",
	// "retransmit", "every:10", or "match tcp.len > 100".
	Packets string
	// Count is how many packets are acted on until the rule rests; 0 is no end.
	Count uint32
	// PerConnection has Count for each connection by itself.
	PerConnection bool
	// Hold is how long they are held, up to a minute; 0 drops them.
	Hold time.Duration
}

// ToxicSpec is a toxic of Toxiproxy's; only the fields of its kind are used.
type ToxicSpec struct {
	// Kind is "latency", "timeout", "reset_peer", "limit_data", "bandwidth", "slicer",
	// "slow_close" or "down".
	Kind string
	// Upstream has it act on what goes to the server, and not on what comes from it.
	Upstream bool
	// Toxicity is the share of connections that it touches; 0 means 100 %.
	Toxicity qdisc.Percent
	// Seed has the same connections touched each time, by their order from the fault's
	// beginning; with a Toxicity below 100 %. 0 draws anew.
	Seed uint64
	// Latency plus or minus Jitter belong to latency; resolution 1 ms.
	Latency, Jitter time.Duration
	// Timeout belongs to timeout (0: holds for ever) and reset_peer (0: at once).
	Timeout time.Duration
	// Bytes belongs to limit_data, Rate to bandwidth.
	Bytes qdisc.Bytes
	Rate  qdisc.Rate
	// AverageSize plus or minus SizeVariation, and Delay, belong to slicer; Delay
	// belongs to slow_close, too.
	AverageSize, SizeVariation qdisc.Bytes
	Delay                      time.Duration
}

// spec translates s; what is missing or wrong is told as the agent would.
func (s Spec) spec() (fault.Spec, error) {
	f := fault.Spec{Target: s.Target, Direction: s.Direction, Engine: fault.Engine(s.Engine), Repair: s.Repair}
	if s.OffloadOff {
		f.Offload = fault.OffloadOff
	}
	var errs []error
	if s.Device != "" {
		sel, err := s.selector()
		f.Selector, errs = sel, append(errs, err)
	}
	if s.Netem != (qdisc.Netem{}) {
		f.Packet = &s.Netem
	}
	if s.Rule != (Rule{}) {
		r, err := s.Rule.rule()
		f.Content, errs = &r, append(errs, err)
	}
	for _, t := range s.Toxics {
		f.Toxics = append(f.Toxics, t.toxic())
	}
	f.Outage = s.Outage
	f.Request = s.Request.request()
	if err := errors.Join(errs...); err != nil {
		return f, err
	}
	return f, f.Validate()
}

// targetName is what the agent calls the target of s; empty for one that it refuses.
func (s Spec) targetName() string {
	f, err := s.spec()
	if err != nil {
		return ""
	}
	return f.TargetName()
}

func (s Spec) selector() (*target.Selector, error) {
	sel := &target.Selector{Namespace: s.Namespace, Device: s.Device, Peers: s.Flow.Peers}
	var errs []error
	if s.Flow.Protocol != "" {
		p, err := target.ParseProtocol(s.Flow.Protocol)
		sel.Protocol, errs = p, append(errs, err)
	}
	for _, p := range s.Flow.Ports {
		ports, err := target.ParsePorts(p)
		sel.PeerPorts, errs = append(sel.PeerPorts, ports), append(errs, err)
	}
	return sel, errors.Join(errs...)
}

func (r Rule) rule() (content.Rule, error) {
	what := strings.TrimSpace(r.Packets)
	words := []string{what}
	if first, rest, ok := strings.Cut(what, " "); ok && first == string(content.Match) {
		words = []string{first, rest}
	}
	rule, err := content.Parse(words)
	if err != nil {
		return rule, fmt.Errorf("rule: %w", err)
	}
	rule.Count, rule.PerConnection, rule.Hold = r.Count, r.PerConnection, r.Hold
	return rule, nil
}

func (t ToxicSpec) toxic() fault.Toxic {
	f := fault.Toxic{
		Kind: fault.ToxicKind(t.Kind), Toxicity: t.Toxicity, Latency: t.Latency, Jitter: t.Jitter, Timeout: t.Timeout,
		Bytes: t.Bytes, Rate: t.Rate, AverageSize: t.AverageSize, SizeVariation: t.SizeVariation, Delay: t.Delay, Seed: t.Seed,
	}
	if t.Upstream {
		f.Stream = fault.Upstream
	}
	return f
}

// Outage makes services fail, once or by a timetable that follows from its Seed. Services are of
// the test's own labs first, then of the agent's.
type Outage = fault.Outage
