package wire

import (
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
)

// ApplyRequest translates what a client asks for.
func ApplyRequest(s fault.Spec) *netemv1.ApplyRequest {
	return &netemv1.ApplyRequest{RequestId: s.RequestID, Spec: FaultSpec(s), SshConnection: s.SSHConnection, WaitNs: int64(s.Wait), Within: s.Within, Beside: s.Beside}
}

// ApplyOf translates a request; the owner in it is ignored.
func ApplyOf(m *netemv1.ApplyRequest) (fault.Spec, error) {
	s, err := SpecOf(m.GetSpec())
	s.RequestID, s.SSHConnection, s.Wait = m.GetRequestId(), m.GetSshConnection(), time.Duration(m.GetWaitNs())
	s.Within, s.Beside = m.GetWithin(), m.GetBeside()
	return s, err
}

// ApplyAllRequest translates what a client asks for at once.
func ApplyAllRequest(specs []fault.Spec) *netemv1.ApplyAllRequest {
	m := &netemv1.ApplyAllRequest{Faults: make([]*netemv1.ApplyRequest, len(specs))}
	for i, s := range specs {
		m.Faults[i] = ApplyRequest(s)
	}
	return m
}

// Event translates what happened.
func Event(e fault.Event) *netemv1.Event {
	return &netemv1.Event{
		Time: timestamppb.New(e.Time), Kind: e.Kind, Fault: Fault(e.Fault), Number: e.Number, Life: e.Life, MonotonicNs: e.Monotonic,
	}
}

// EventOf translates an answer.
func EventOf(m *netemv1.Event) (fault.Event, error) {
	e := fault.Event{Time: m.GetTime().AsTime(), Kind: m.GetKind(), Number: m.GetNumber(), Life: m.GetLife(), Monotonic: m.GetMonotonicNs()}
	var err error
	e.Fault, err = FaultOf(m.GetFault())
	return e, err
}

// Held is what an agent says on the stream by which a client holds a fault.
type Held struct {
	// Fault is the zero value while a conflicting one stands.
	Fault fault.Fault
	// Token is of this stream, which has the fault as long as no later one takes it over.
	Token uint64
	// Kind is what happened, as in fault.Event, or Waiting; Detail is then what is in the
	// way, in words.
	Kind, Detail string
}

// Waiting is the Kind of a message that tells that a conflicting fault stands.
const Waiting = "waiting"

// HoldResponse translates h for a client.
func HoldResponse(h Held) *netemv1.HoldResponse {
	m := &netemv1.HoldResponse{Token: h.Token, Kind: h.Kind, Detail: h.Detail}
	if h.Fault.ID != "" {
		m.Fault = Fault(h.Fault)
	}
	return m
}

// HeldOf translates what an agent says.
func HeldOf(m *netemv1.HoldResponse) (Held, error) {
	h := Held{Token: m.GetToken(), Kind: m.GetKind(), Detail: m.GetDetail()}
	var err error
	if m.GetFault() != nil {
		h.Fault, err = FaultOf(m.GetFault())
	}
	return h, err
}

// HoldApply is the first request of a stream that makes a fault.
func HoldApply(s fault.Spec) *netemv1.HoldRequest {
	return &netemv1.HoldRequest{What: &netemv1.HoldRequest_Apply{Apply: ApplyRequest(s)}}
}

// HoldResume is the first request of a stream that takes a fault over from one which
// broke.
func HoldResume(id string, token uint64) *netemv1.HoldRequest {
	return &netemv1.HoldRequest{What: &netemv1.HoldRequest_Resume{Resume: &netemv1.HoldResume{Id: id, Token: token}}}
}

// HoldRenew gives the fault its time to live again.
func HoldRenew() *netemv1.HoldRequest {
	return &netemv1.HoldRequest{What: &netemv1.HoldRequest_Renew{Renew: &netemv1.HoldRenew{}}}
}

// HoldRelease ends the fault.
func HoldRelease() *netemv1.HoldRequest {
	return &netemv1.HoldRequest{What: &netemv1.HoldRequest_Release{Release: &netemv1.HoldRelease{}}}
}
