package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/lab"
	"netemd/internal/target"
	"netemd/probe"
	"netemd/qdisc"
)

// every has a different value in each field, so that a field that is forgotten or
// swapped shows.
var every = qdisc.Netem{
	Delay: 1, Jitter: 2, DelayCorrelation: 3, Distribution: qdisc.Normal, Loss: 4, LossCorrelation: 5, Duplicate: 6, DuplicateCorrelation: 7,
	Reorder: 8, ReorderCorrelation: 9, Gap: 10, Corrupt: 11, CorruptCorrelation: 12, Limit: 13, Seed: 14,
}

func TestFaultSurvivesTheTrip(t *testing.T) {
	for _, want := range []fault.Fault{
		{
			ID: "f1", State: fault.Drifted, Engine: fault.EBPF, EngineReason: "why", Placement: []string{"a", "b"}, Warnings: []string{"w"}, CountersMissing: []string{"c"}, Queued: 9,
			Applied: time.Unix(1, 2).UTC(), Expires: time.Unix(3, 4).UTC(),
			Spec: fault.Spec{Target: "pg", Direction: fault.Both, Engine: fault.Auto, Packet: &every, TTL: time.Minute, Owner: "uid 0", Repair: true}, Token: 10,
			Counters: fault.Counters{Seen: 1, Lost: 2, Overflow: 3, Late: 9, Refused: 10, Delayed: 4, Duplicated: 5, Reordered: 6, Corrupted: 7, Opened: 8},
		},
		{
			ID: "f2", State: fault.Active, Engine: fault.Stream, Applied: time.Unix(1, 0).UTC(), Expires: time.Unix(2, 0).UTC(),
			Spec: fault.Spec{Target: "pg", Toxics: []fault.Toxic{{
				Kind: fault.Slicer, Stream: fault.Upstream, Toxicity: 1, Latency: 2, Jitter: 3, Timeout: 4, Bytes: 5, Rate: 6,
				AverageSize: 7, SizeVariation: 8, Delay: 9,
			}}},
		},
		{
			ID: "f3", State: fault.Active, Engine: fault.EBPF, Applied: time.Unix(1, 0).UTC(), Expires: time.Unix(2, 0).UTC(),
			Spec: fault.Spec{
				Selector: &target.Selector{Device: "v0", Protocol: 6, FlagsSet: 2, FlagsClear: 16},
				Content:  &content.Rule{Kind: content.Match, N: 1, Expr: "tcp.len > 2", Count: 3, PerConnection: true, Hold: 4},
			},
		},
		{
			ID: "f5", State: fault.Active, Engine: fault.Process, Applied: time.Unix(1, 0).UTC(), Expires: time.Unix(2, 0).UTC(),
			Spec: fault.Spec{Outage: &fault.Outage{Action: fault.Stop, Services: []string{"a/b", "a/c"}, Down: 1, Every: 2, Jitter: 3, Count: 4, AtMost: 5, Seed: 6}},
			Outages: &fault.OutageRun{
				Of: 1, Done: 2, Skipped: 3, Failed: 4, Down: []string{"a/b"}, Next: time.Unix(5, 0).UTC(), Over: true,
				Strikes: []fault.StrikeRecord{{
					Number: 1, Service: "a/b", Action: fault.Kill, Due: time.Unix(6, 0).UTC(), PID: 7, NewPID: 8, Skipped: "s", Error: "e",
					Down: fault.Instant{Time: time.Unix(7, 0).UTC(), Monotonic: 9}, Up: fault.Instant{Time: time.Unix(8, 0).UTC(), Monotonic: 10}, Ready: fault.Instant{Time: time.Unix(9, 0).UTC(), Monotonic: 11},
				}, {Number: 2, Service: "a/c"}},
			},
		},
		{
			ID: "f4", State: fault.Active, Engine: fault.Application, Applied: time.Unix(1, 0).UTC(), Expires: time.Unix(2, 0).UTC(),
			Spec: fault.Spec{Target: "web", Request: &fault.Request{
				Error: 1, Delay: 2, Abort: 3, Status: 4, Code: "c", RetryAfter: 5, Pushback: 6, Latency: 7, Jitter: 8, Method: "m", Path: "p",
				Headers: []fault.Header{{Name: "n", Value: "v"}}, Seed: 9,
			}},
			Counters: fault.Counters{Seen: 1, Errors: 2, Delayed: 3, Aborted: 4},
		},
	} {
		got, err := FaultOf(Fault(want))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("fault %s (-want +got):\n%s", want.ID, diff)
		}
	}
}

func TestChosenPacketsSurviveTheTrip(t *testing.T) {
	want := content.Log{Chosen: 1, Missed: 2, Skipped: 13, Forgotten: 14, Records: []content.Record{{
		Time: 3, Wall: time.Unix(4, 5).UTC(), Source: "10.0.0.1:1", Destination: "10.0.0.2:2", Protocol: 6, Flags: 7, Sequence: 8, Payload: 9, Segment: 10,
		Length: 11, Segments: 12,
	}}}
	if diff := cmp.Diff(want, PacketsOf(Packets(want))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestNumbersThatDoNotFit(t *testing.T) {
	for _, m := range []*netemv1.TrafficSelector{{Device: "v0", TcpFlagsSet: 256}, {Device: "v0", TcpFlagsClear: 1 << 20}, {Device: "v0", Protocol: 256}} {
		if _, err := SpecOf(&netemv1.FaultSpec{Selector: m}); !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%v: %v, want invalid", m, err)
		}
	}
}

func TestUnsetAndZeroStayDifferent(t *testing.T) {
	zero, five := qdisc.Percent(0), qdisc.Percent(5)
	want := qdisc.Patch{Loss: &zero, Duplicate: &five}
	if diff := cmp.Diff(want, PatchOf(Patch(want))); diff != "" {
		t.Errorf("patch (-want +got):\n%s", diff)
	}
	n := PatchOf(Patch(want)).Apply(qdisc.Netem{Loss: 20, Delay: time.Second})
	if diff := cmp.Diff(qdisc.Netem{Delay: time.Second, Duplicate: 5}, n); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
}

func TestTargetLabAndFeaturesSurviveTheTrip(t *testing.T) {
	place := target.Place{
		Namespace: "n", Device: "d", Index: 3, Hook: target.Egress, Owned: true,
		Match: target.Match{Include: []target.Flow{{Protocol: 6, Source: netip.MustParsePrefix("10.0.0.0/8"), Destination: netip.MustParsePrefix("::1/128"), SourcePorts: target.Port(1), DestinationPorts: target.Port(2), FlagsSet: 3, FlagsClear: 4}}},
	}
	tgt := target.Target{
		Name: "pg", Lab: "pg", Node: "server", Address: netip.MustParseAddrPort("10.77.0.2:5432"), Proxy: netip.MustParseAddrPort("10.77.0.2:15432"),
		HTTPProxy: netip.MustParseAddrPort("10.77.0.2:18080"), ClientNamespace: "c", ServerNamespace: "s", To: place, From: target.Place{Device: "e"},
	}
	if diff := cmp.Diff(tgt, TargetOf(Target(tgt)), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); diff != "" {
		t.Errorf("target (-want +got):\n%s", diff)
	}
	info := lab.Info{Name: "pg", Targets: []string{"pg"}, Up: time.Unix(5, 0).UTC(), Nodes: []lab.NodeInfo{{
		Name: "server", Namespace: "s", Addresses: []netip.Prefix{netip.MustParsePrefix("10.77.0.2/24")},
		Services: []lab.ServiceInfo{{Name: "postgres", Kind: "postgres", PID: 7, Address: tgt.Address, Log: "/l"}},
	}}}
	if diff := cmp.Diff(info, LabOf(Lab(info)), cmpopts.EquateComparable(netip.Prefix{}, netip.AddrPort{})); diff != "" {
		t.Errorf("lab (-want +got):\n%s", diff)
	}
	differences := []lab.Difference{{Path: "nodes.a", Want: "w", Have: "h"}}
	if diff := cmp.Diff(differences, LabDifferencesOf(LabDifferences(differences))); diff != "" {
		t.Errorf("differences (-want +got):\n%s", diff)
	}
	report := feature.Report{Kernel: "6.1", Auto: fault.Netem, AutoReason: "r", Features: []feature.Feature{{Name: "tcx", State: feature.No, Detail: "d", Hint: "h"}}}
	got, err := FeaturesOf(Features(report))
	if diff := cmp.Diff(report, got); diff != "" || err != nil {
		t.Errorf("features: %v (-want +got):\n%s", err, diff)
	}
}

func TestErrorsSurviveTheTrip(t *testing.T) {
	for _, sentinel := range []error{
		target.ErrUnknown, lab.ErrUnknown, lab.ErrConflict, lab.ErrAmbiguous, probe.ErrRequest, fault.ErrConflict, fault.ErrBusy, fault.ErrProtected, errors.ErrUnsupported, fs.ErrPermission, fs.ErrNotExist, fs.ErrExist, context.DeadlineExceeded, qdisc.ErrInvalid,
	} {
		sent := fault.WithHint(fmt.Errorf("apply: %w", sentinel), "do this")
		got := ErrorOf(Status(sent))
		if !errors.Is(got, sentinel) || got.Error() != sent.Error() {
			t.Errorf("%v came back as %v", sent, got)
		}
		if fault.HintOf(got) != "do this" {
			t.Errorf("%v lost its hint", sent)
		}
	}
	joined := errors.Join(&qdisc.FieldError{Field: "loss", Value: "120%", Want: "less"}, &qdisc.FieldError{Field: "ttl", Want: "more"})
	if got := ErrorOf(Status(joined)); got.Error() != `loss "120%": want less; ttl: want more` || !errors.Is(got, qdisc.ErrInvalid) {
		t.Errorf("joined errors came back as %v", got)
	}
	if Status(nil) != nil || ErrorOf(nil) != nil {
		t.Error("no error became one")
	}
	foreign := status.Error(codes.Unavailable, "broken")
	if !errors.Is(ErrorOf(foreign), foreign) {
		t.Error("a status of gRPC's own was changed")
	}
}

func TestKeepaliveOfBothEndsFit(t *testing.T) {
	if ServerMinPing > ClientPing {
		t.Errorf("the client pings every %v, the server allows one each %v: it would cut the connection", ClientPing, ServerMinPing)
	}
	if ReconnectFirst > ReconnectMost || ReconnectMost > time.Second || ReconnectMost*5 > HoldGrace {
		t.Errorf("a client comes back after %v to %v, in a grace of %v", ReconnectFirst, ReconnectMost, HoldGrace)
	}
	if noticed := ClientPing + ClientPingTimeout; noticed > 15*time.Second {
		t.Errorf("a dead agent is noticed after %v only", noticed)
	}
}
