package wire

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

var directions = table[netemv1.Direction, fault.Direction]{
	{netemv1.Direction_DIRECTION_UNSPECIFIED, ""},
	{netemv1.Direction_DIRECTION_TO, fault.To},
	{netemv1.Direction_DIRECTION_FROM, fault.From},
	{netemv1.Direction_DIRECTION_BOTH, fault.Both},
}

var engines = table[netemv1.Engine, fault.Engine]{
	{netemv1.Engine_ENGINE_UNSPECIFIED, ""},
	{netemv1.Engine_ENGINE_AUTO, fault.Auto},
	{netemv1.Engine_ENGINE_NETEM, fault.Netem},
	{netemv1.Engine_ENGINE_EBPF, fault.EBPF},
	{netemv1.Engine_ENGINE_STREAM, fault.Stream},
	{netemv1.Engine_ENGINE_PROCESS, fault.Process},
	{netemv1.Engine_ENGINE_APPLICATION, fault.Application},
}

var states = table[netemv1.FaultState, fault.State]{
	{netemv1.FaultState_FAULT_STATE_UNSPECIFIED, ""},
	{netemv1.FaultState_FAULT_STATE_ACTIVE, fault.Active},
	{netemv1.FaultState_FAULT_STATE_LOST, fault.Lost},
	{netemv1.FaultState_FAULT_STATE_DRIFTED, fault.Drifted},
	{netemv1.FaultState_FAULT_STATE_CLEARED, fault.Cleared},
	{netemv1.FaultState_FAULT_STATE_EXPIRED, fault.Expired},
}

// table pairs an enum of the contract with a domain value.
type table[P, D comparable] []struct {
	proto  P
	domain D
}

// toProto returns the first entry's value for what the domain does not have.
func (t table[P, D]) toProto(d D) P {
	for _, e := range t {
		if e.domain == d {
			return e.proto
		}
	}
	return t[0].proto
}

func (t table[P, D]) fromProto(field string, p P) (D, error) {
	for _, e := range t {
		if e.proto == p {
			return e.domain, nil
		}
	}
	var zero D
	return zero, &qdisc.FieldError{Field: field, Want: "a value of this version's contract"}
}

// FaultSpec translates s for the agent.
func FaultSpec(s fault.Spec) *netemv1.FaultSpec {
	m := &netemv1.FaultSpec{
		Target: s.Target, Direction: directions.toProto(s.Direction), Engine: engines.toProto(s.Engine),
		TtlNs: int64(s.TTL), Owner: s.Owner, Force: s.Force, Offload: s.Offload,
		Content: contentRule(s.Content), Repair: s.Repair, Reattach: s.Reattach,
	}
	if s.Selector != nil {
		m.Selector = trafficSelector(*s.Selector)
	}
	if s.Packet != nil {
		m.Packet = Netem(*s.Packet)
	}
	if s.PacketFrom != nil {
		m.PacketFrom = Netem(*s.PacketFrom)
	}
	m.Schedule, m.Profile = scheduleTo(s.Schedule), s.Profile
	m.Outage = outageTo(s.Outage)
	m.Request = request(s.Request)
	for _, t := range s.Toxics {
		m.Toxics = append(m.Toxics, toxic(t))
	}
	return m
}

// SpecOf translates a request; the owner in it is ignored.
func SpecOf(m *netemv1.FaultSpec) (fault.Spec, error) {
	s := fault.Spec{
		Target: m.GetTarget(), TTL: time.Duration(m.GetTtlNs()), Force: m.GetForce(), Offload: m.GetOffload(), Content: contentRuleOf(m.GetContent()),
		Repair: m.GetRepair(), Reattach: m.GetReattach(),
	}
	var err error
	if m.GetSelector() != nil {
		if s.Selector, err = trafficSelectorOf(m.GetSelector()); err != nil {
			return s, err
		}
	}
	if s.Direction, err = directions.fromProto("direction", m.GetDirection()); err != nil {
		return s, err
	}
	if s.Engine, err = engines.fromProto("engine", m.GetEngine()); err != nil {
		return s, err
	}
	if s.Packet, err = netemOf(m.GetPacket()); err != nil {
		return s, err
	}
	if s.PacketFrom, err = netemOf(m.GetPacketFrom()); err != nil {
		return s, err
	}
	if s.Schedule, err = scheduleOf(m.GetSchedule()); err != nil {
		return s, err
	}
	s.Profile = m.GetProfile()
	s.Outage = outageOf(m.GetOutage())
	s.Request = requestOf(m.GetRequest())
	for _, t := range m.GetToxics() {
		s.Toxics = append(s.Toxics, toxicOf(t))
	}
	return s, nil
}

// netemOf is nil for nil.
func netemOf(m *netemv1.Netem) (*qdisc.Netem, error) {
	if m == nil {
		return nil, nil
	}
	p := PatchOf(m)
	if err := p.Validate(); err != nil {
		return nil, err
	}
	n := p.Apply(qdisc.Netem{})
	return &n, nil
}

// Netem translates a whole impairment: only fields that are not zero are set.
func Netem(n qdisc.Netem) *netemv1.Netem {
	return &netemv1.Netem{
		DelayNs: unlessZero(int64(n.Delay)), JitterNs: unlessZero(int64(n.Jitter)),
		DelayCorrelationPercent: unlessZero(float64(n.DelayCorrelation)),
		Distribution:            unlessZero(string(n.Distribution)),
		LossPercent:             unlessZero(float64(n.Loss)), LossCorrelationPercent: unlessZero(float64(n.LossCorrelation)),
		DuplicatePercent: unlessZero(float64(n.Duplicate)), DuplicateCorrelationPercent: unlessZero(float64(n.DuplicateCorrelation)),
		ReorderPercent: unlessZero(float64(n.Reorder)), ReorderCorrelationPercent: unlessZero(float64(n.ReorderCorrelation)),
		GapPackets:     unlessZero(n.Gap),
		CorruptPercent: unlessZero(float64(n.Corrupt)), CorruptCorrelationPercent: unlessZero(float64(n.CorruptCorrelation)),
		LimitPackets: unlessZero(n.Limit), Seed: unlessZero(n.Seed),
		LossState: lossState(unlessZero(n.LossState)), GilbertElliott: gilbertElliott(unlessZero(n.GilbertElliott)), Ecn: unlessZero(n.ECN),
		RateBytesPerSecond: unlessZero(uint64(n.Rate)), PacketOverheadBytes: unlessZero(n.PacketOverhead),
		CellSizeBytes: unlessZero(n.CellSize), CellOverheadBytes: unlessZero(n.CellOverhead),
		Slot: slot(unlessZero(n.Slot)), DistributionSamples: samples(n.Samples),
	}
}

func unlessZero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// Patch translates a change: a field that is set to zero is sent as zero.
func Patch(p qdisc.Patch) *netemv1.Netem {
	m := &netemv1.Netem{GapPackets: p.Gap, LimitPackets: p.Limit, Seed: p.Seed}
	m.DelayNs, m.JitterNs = convert[int64](p.Delay), convert[int64](p.Jitter)
	m.DelayCorrelationPercent = convert[float64](p.DelayCorrelation)
	m.LossPercent, m.LossCorrelationPercent = convert[float64](p.Loss), convert[float64](p.LossCorrelation)
	m.DuplicatePercent, m.DuplicateCorrelationPercent = convert[float64](p.Duplicate), convert[float64](p.DuplicateCorrelation)
	m.ReorderPercent, m.ReorderCorrelationPercent = convert[float64](p.Reorder), convert[float64](p.ReorderCorrelation)
	m.CorruptPercent, m.CorruptCorrelationPercent = convert[float64](p.Corrupt), convert[float64](p.CorruptCorrelation)
	if p.Distribution != nil {
		d := string(*p.Distribution)
		m.Distribution = &d
	}
	if p.Samples != nil {
		m.DistributionSamples = samples(*p.Samples)
	}
	m.LossState, m.GilbertElliott, m.Ecn = lossState(p.LossState), gilbertElliott(p.GilbertElliott), p.ECN
	m.RateBytesPerSecond = convert[uint64](p.Rate)
	m.PacketOverheadBytes, m.CellSizeBytes, m.CellOverheadBytes = p.PacketOverhead, p.CellSize, p.CellOverhead
	m.Slot = slot(p.Slot)
	return m
}

// PatchOf translates a change, or with Patch.Apply a whole impairment.
func PatchOf(m *netemv1.Netem) qdisc.Patch {
	if m == nil {
		return qdisc.Patch{}
	}
	p := qdisc.Patch{Gap: m.GapPackets, Limit: m.LimitPackets, Seed: m.Seed}
	p.Delay, p.Jitter = convert[time.Duration](m.DelayNs), convert[time.Duration](m.JitterNs)
	p.DelayCorrelation = convert[qdisc.Percent](m.DelayCorrelationPercent)
	p.Loss, p.LossCorrelation = convert[qdisc.Percent](m.LossPercent), convert[qdisc.Percent](m.LossCorrelationPercent)
	p.Duplicate, p.DuplicateCorrelation = convert[qdisc.Percent](m.DuplicatePercent), convert[qdisc.Percent](m.DuplicateCorrelationPercent)
	p.Reorder, p.ReorderCorrelation = convert[qdisc.Percent](m.ReorderPercent), convert[qdisc.Percent](m.ReorderCorrelationPercent)
	p.Corrupt, p.CorruptCorrelation = convert[qdisc.Percent](m.CorruptPercent), convert[qdisc.Percent](m.CorruptCorrelationPercent)
	if m.Distribution != nil {
		d := qdisc.Distribution(*m.Distribution)
		p.Distribution = &d
	}
	if m.DistributionSamples != nil {
		s := samplesOf(m.DistributionSamples)
		p.Samples = &s
	}
	p.LossState, p.GilbertElliott, p.ECN = lossStateOf(m.LossState), gilbertElliottOf(m.GilbertElliott), m.Ecn
	p.Rate = convert[qdisc.Rate](m.RateBytesPerSecond)
	p.PacketOverhead, p.CellSize, p.CellOverhead = m.PacketOverheadBytes, m.CellSizeBytes, m.CellOverheadBytes
	p.Slot = slotOf(m.Slot)
	return p
}

// convert keeps nil nil.
func convert[T, F ~int64 | ~float64 | ~uint64](v *F) *T {
	if v == nil {
		return nil
	}
	t := T(*v)
	return &t
}

func toxic(t fault.Toxic) *netemv1.Toxic {
	return &netemv1.Toxic{
		Kind: string(t.Kind), Stream: string(t.Stream), ToxicityPercent: float64(t.Toxicity),
		LatencyNs: int64(t.Latency), JitterNs: int64(t.Jitter), TimeoutNs: int64(t.Timeout),
		Bytes: uint64(t.Bytes), RateBytesPerSecond: uint64(t.Rate),
		AverageSizeBytes: uint64(t.AverageSize), SizeVariationBytes: uint64(t.SizeVariation), DelayNs: int64(t.Delay), Seed: t.Seed,
	}
}

func toxicOf(m *netemv1.Toxic) fault.Toxic {
	return fault.Toxic{
		Kind: fault.ToxicKind(m.GetKind()), Stream: fault.StreamDirection(m.GetStream()), Toxicity: qdisc.Percent(m.GetToxicityPercent()),
		Latency: time.Duration(m.GetLatencyNs()), Jitter: time.Duration(m.GetJitterNs()), Timeout: time.Duration(m.GetTimeoutNs()),
		Bytes: qdisc.Bytes(m.GetBytes()), Rate: qdisc.Rate(m.GetRateBytesPerSecond()),
		AverageSize: qdisc.Bytes(m.GetAverageSizeBytes()), SizeVariation: qdisc.Bytes(m.GetSizeVariationBytes()),
		Delay: time.Duration(m.GetDelayNs()), Seed: m.GetSeed(),
	}
}

// Fault translates f for a client.
func Fault(f fault.Fault) *netemv1.Fault {
	return &netemv1.Fault{
		Id: f.ID, Spec: FaultSpec(f.Spec), State: states.toProto(f.State), Engine: engines.toProto(f.Engine),
		EngineReason: f.EngineReason, Placement: f.Placement, Warnings: f.Warnings, CountersMissing: f.CountersMissing,
		Applied: timestamppb.New(f.Applied), Expires: timestamppb.New(f.Expires), Offloads: offloads(f.Offloads),
		QueuedPackets: f.Queued, HoldToken: f.Token,
		Reason: f.Reason, Counters: counters(f.Counters), Total: counters(f.Total), Step: faultStep(f.Step), Outages: outageRun(f.Outages),
	}
}

// FaultOf translates an answer.
func FaultOf(m *netemv1.Fault) (fault.Fault, error) {
	s, err := SpecOf(m.GetSpec())
	if err != nil {
		return fault.Fault{}, err
	}
	s.Owner = m.GetSpec().GetOwner()
	f := fault.Fault{
		ID: m.GetId(), Spec: s, EngineReason: m.GetEngineReason(), Placement: m.GetPlacement(), Warnings: m.GetWarnings(),
		CountersMissing: m.GetCountersMissing(), Queued: m.GetQueuedPackets(), Token: m.GetHoldToken(),
		Applied: m.GetApplied().AsTime(), Expires: m.GetExpires().AsTime(), Offloads: offloadsOf(m.GetOffloads()),
	}
	if f.State, err = states.fromProto("state", m.GetState()); err != nil {
		return f, err
	}
	if f.Engine, err = engines.fromProto("engine", m.GetEngine()); err != nil {
		return f, err
	}
	f.Step = faultStepOf(m.GetStep())
	f.Outages = outageRunOf(m.GetOutages())
	f.Reason, f.Counters, f.Total = m.GetReason(), countersOf(m.GetCounters()), countersOf(m.GetTotal())
	return f, nil
}

func counters(c fault.Counters) *netemv1.Counters {
	return &netemv1.Counters{
		Seen: c.Seen, Lost: c.Lost, Overflow: c.Overflow, Late: c.Late, Refused: c.Refused, Delayed: c.Delayed,
		Duplicated: c.Duplicated, Reordered: c.Reordered, Corrupted: c.Corrupted, Opened: c.Opened,
		Errors: c.Errors, Aborted: c.Aborted,
	}
}

func countersOf(c *netemv1.Counters) fault.Counters {
	return fault.Counters{
		Seen: c.GetSeen(), Lost: c.GetLost(), Overflow: c.GetOverflow(), Late: c.GetLate(), Refused: c.GetRefused(), Delayed: c.GetDelayed(),
		Duplicated: c.GetDuplicated(), Reordered: c.GetReordered(), Corrupted: c.GetCorrupted(), Opened: c.GetOpened(),
		Errors: c.GetErrors(), Aborted: c.GetAborted(),
	}
}

// Faults translates a list.
func Faults(fs []fault.Fault) []*netemv1.Fault {
	ms := make([]*netemv1.Fault, len(fs))
	for i, f := range fs {
		ms[i] = Fault(f)
	}
	return ms
}

// FaultsOf translates a list.
func FaultsOf(ms []*netemv1.Fault) ([]fault.Fault, error) {
	fs := make([]fault.Fault, len(ms))
	for i, m := range ms {
		var err error
		if fs[i], err = FaultOf(m); err != nil {
			return nil, err
		}
	}
	return fs, nil
}

// SelectorOf translates what to clear.
func SelectorOf(m *netemv1.ClearRequest) (fault.Selector, error) {
	s := fault.Selector{ID: m.GetId(), Target: m.GetTarget(), All: m.GetAll()}
	if d := m.GetDevice(); d != nil {
		s.Device = target.Selector{Namespace: d.GetNamespace(), Device: d.GetDevice()}.Name()
	}
	if s == (fault.Selector{}) {
		return s, &qdisc.FieldError{Field: "clear", Want: "an id, a target, a device or all"}
	}
	return s, nil
}

// Selector translates what to clear.
func Selector(s fault.Selector) *netemv1.ClearRequest {
	switch {
	case s.All:
		return &netemv1.ClearRequest{What: &netemv1.ClearRequest_All{All: true}}
	case s.Device != "":
		device, namespace, _ := strings.Cut(s.Device, "@")
		return &netemv1.ClearRequest{What: &netemv1.ClearRequest_Device{Device: &netemv1.DeviceName{Namespace: namespace, Device: device}}}
	case s.Target != "":
		return &netemv1.ClearRequest{What: &netemv1.ClearRequest_Target{Target: s.Target}}
	default:
		return &netemv1.ClearRequest{What: &netemv1.ClearRequest_Id{Id: s.ID}}
	}
}
