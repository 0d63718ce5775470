package wire

import (
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/qdisc"
)

func TestApplySurvivesTheTrip(t *testing.T) {
	want := fault.Spec{Target: "pg", Packet: &every, TTL: 1, RequestID: "2", Wait: 3, Repair: true, SSHConnection: "4"}
	got, err := ApplyOf(ApplyRequest(want))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	if got, err = ApplyOf(HoldApply(want).GetApply()); err != nil || got.Wait != 3 {
		t.Errorf("on a stream: %+v, error %v", got, err)
	}
	later := ApplyRequest(want)
	later.Spec.Direction = 99
	if _, err := ApplyOf(later); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("a direction of a later version: %v, want invalid", err)
	}
}

// held is a fault as an agent sends it.
func held() fault.Fault {
	return fault.Fault{
		ID: "f1", State: fault.Lost, Engine: fault.EBPF, Applied: time.Unix(1, 0).UTC(), Expires: time.Unix(2, 0).UTC(), Token: 3,
		Spec: fault.Spec{Target: "pg", Packet: &every, Owner: "uid 4"},
	}
}

func TestEventSurvivesTheTrip(t *testing.T) {
	want := fault.Event{Number: 1, Life: "xyz", Time: time.Unix(2, 3).UTC(), Monotonic: 4, Kind: "lost", Fault: held()}
	got, err := EventOf(Event(want))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestHeldSurvivesTheTrip(t *testing.T) {
	for _, want := range []Held{{Fault: held(), Token: 3, Kind: "lost"}, {Kind: Waiting, Detail: "f2 of uid 5"}} {
		got, err := HeldOf(HoldResponse(want))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%s: error %v (-want +got):\n%s", want.Kind, err, diff)
		}
	}
}

func TestHoldRequests(t *testing.T) {
	if r := HoldResume("f1", 7).GetResume(); r.GetId() != "f1" || r.GetToken() != 7 {
		t.Errorf("resume %v", r)
	}
	if HoldRenew().GetRenew() == nil || HoldRelease().GetRelease() == nil || HoldRenew().GetRelease() != nil {
		t.Error("renew and release are not what they say")
	}
}

// TestDeniedIsNotProtected: both are of fs.ErrPermission, and stay apart.
func TestDeniedIsNotProtected(t *testing.T) {
	denied, protected := ErrorOf(Status(fault.ErrDenied)), ErrorOf(Status(fault.ErrProtected))
	if !errors.Is(denied, fault.ErrDenied) || errors.Is(denied, fault.ErrProtected) || !errors.Is(denied, fs.ErrPermission) {
		t.Errorf("denied came back as %v", denied)
	}
	if !errors.Is(protected, fault.ErrProtected) || errors.Is(protected, fault.ErrDenied) || !errors.Is(protected, fs.ErrPermission) {
		t.Errorf("protected came back as %v", protected)
	}
	if missed := ErrorOf(Status(fault.ErrMissed)); !errors.Is(missed, fault.ErrMissed) {
		t.Errorf("missed came back as %v", missed)
	}
}
