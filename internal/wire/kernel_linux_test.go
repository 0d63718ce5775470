package wire

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// The kernel's own words, its extended acknowledgement too, reach the client, in one
// line.
func TestKernelsWordsSurviveTheTrip(t *testing.T) {
	refused := &qdisc.OpError{Op: "qdisc change", Device: "eth0", Namespace: "web", Err: syscall.EINVAL, Message: "netem: cannot mix duplicating netems with other netems in tree"}
	undo := &qdisc.OpError{Op: "filter delete", Device: "eth0", Err: syscall.EPERM}
	got := ErrorOf(Status(errors.Join(fmt.Errorf("apply: %w", refused), undo)))
	want := `apply: qdisc change: eth0 in netns web: invalid argument (kernel: "netem: cannot mix duplicating netems with other netems in tree"); filter delete: eth0: operation not permitted`
	if got.Error() != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	gone := &qdisc.OpError{Op: "qdisc read", Device: "v0", Err: syscall.ENODEV}
	if got := ErrorOf(Status(gone)); !errors.Is(got, fs.ErrNotExist) || got.Error() != gone.Error() {
		t.Errorf("a device that is gone came back as %v", got)
	}
}

func TestRefusalsSurviveTheTrip(t *testing.T) {
	protected := fmt.Errorf("apply: %w: use --force ssh", fault.ErrProtected)
	if got := ErrorOf(Status(protected)); !errors.Is(got, fault.ErrProtected) || !errors.Is(got, fs.ErrPermission) || got.Error() != protected.Error() {
		t.Errorf("came back as %v", got)
	}
	stale := fmt.Errorf("%w: %w", &qdisc.FieldError{Field: "netns", Value: "x", Want: "a network namespace"}, namespaces.ErrStale)
	if got := ErrorOf(Status(stale)); !errors.Is(got, qdisc.ErrInvalid) || !strings.Contains(got.Error(), "not a network namespace (nsfs): stale file") {
		t.Errorf("came back as %v", got)
	}
}

// A selector is on the agent's side what it was on the client's.
func TestSelectorSurvivesTheTrip(t *testing.T) {
	s := fault.Spec{
		Packet: &qdisc.Netem{Loss: 5}, Force: []string{"ssh", "agent"}, Offload: "off", Direction: fault.Both,
		Selector: &target.Selector{
			Namespace: "n", Device: "d", Protocol: 6, Peers: []string{"a", "b"}, Locals: []string{"c"},
			PeerPorts: []target.Ports{{First: 1, Last: 2}}, LocalPorts: []target.Ports{target.Port(3)},
			ExcludePeers: []string{"e"}, ExcludePorts: []target.Ports{target.Port(4)}, Control: true,
		},
	}
	got, err := SpecOf(FaultSpec(s))
	if err != nil || fmt.Sprintf("%+v", *got.Selector) != fmt.Sprintf("%+v", *s.Selector) || got.Offload != "off" || fmt.Sprint(got.Force) != "[ssh agent]" {
		t.Errorf("%+v %+v, %v", got, got.Selector, err)
	}
	m := FaultSpec(s)
	m.Selector.PeerPorts[0].Last = 70000
	if _, err := SpecOf(m); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("port 70000: %v", err)
	}
	m = FaultSpec(s)
	m.Selector.Protocol = 256 + 6
	if _, err := SpecOf(m); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("protocol 262: %v", err)
	}
	for _, sel := range []fault.Selector{{Device: "v0@blue"}, {Device: "v0"}, {Target: "pg"}, {ID: "abc1"}, {All: true}} {
		if got, err := SelectorOf(Selector(sel)); err != nil || got != sel {
			t.Errorf("%+v came back as %+v, %v", sel, got, err)
		}
	}
}
