package wire

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// FuzzRequest has a client send anything as an ApplyRequest and as a ChangeRequest. What is
// refused is refused with the field's name; what is valid means the same after a trip, and
// stays valid by the change that is valid for it.
func FuzzRequest(f *testing.F) {
	loss := qdisc.Percent(5)
	seeds := []fault.Spec{
		{Target: "pg", Direction: fault.Both, Engine: fault.Auto, Packet: &qdisc.Netem{Loss: 20, Delay: time.Millisecond}, TTL: time.Minute, RequestID: "1"},
		{Selector: &target.Selector{Device: "v0", Namespace: "a", Protocol: 6, FlagsSet: 2, PeerPorts: []target.Ports{target.Port(5432)}}, Packet: &every},
		{Target: "pg", Content: &content.Rule{Kind: content.Match, N: 1, Expr: "tcp.len > 2", Count: 3, PerConnection: true}},
		{Target: "pg", Toxics: []fault.Toxic{{Kind: fault.Latency, Stream: fault.Downstream, Toxicity: 100, Latency: time.Second}}, Wait: time.Second},
		{Target: "pg", Packet: &qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10, LossBad: 100}, Rate: 1e6}},
	}
	change := encoded(f, &netemv1.ChangeRequest{Id: "f1", Packet: Patch(qdisc.Patch{Loss: &loss})})
	for _, s := range seeds {
		f.Add(encoded(f, ApplyRequest(s)), change)
	}
	f.Fuzz(func(t *testing.T, apply, change []byte) {
		var a netemv1.ApplyRequest
		var c netemv1.ChangeRequest
		if proto.Unmarshal(apply, &a) != nil || proto.Unmarshal(change, &c) != nil {
			return // gRPC refuses it
		}
		s, err := ApplyOf(&a)
		if err = errors.Join(err, s.Validate()); err != nil {
			refusedByField(t, err)
			return
		}
		again, err := ApplyOf(ApplyRequest(s))
		if diff := cmp.Diff(s, again); err != nil || diff != "" {
			t.Fatalf("%v (-sent +got):\n%s", err, diff)
		}
		p := PatchOf(c.GetPacket())
		if err := p.Validate(); err != nil {
			refusedByField(t, err)
			return
		}
		if s.Packet == nil {
			return
		}
		changed := p.Apply(*s.Packet)
		if err := changed.Validate(); err != nil {
			refusedByField(t, err)
			return
		}
		if got := PatchOf(Netem(changed)).Apply(qdisc.Netem{}); got != changed {
			t.Fatalf("a changed one (-sent +got):\n%s", cmp.Diff(changed, got))
		}
	})
}

func encoded(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// refusedByField wants an error that says which field and what would be allowed.
func refusedByField(t *testing.T, err error) {
	t.Helper()
	field, ok := errors.AsType[*qdisc.FieldError](err)
	if !ok || field.Field == "" || field.Want == "" || !errors.Is(err, qdisc.ErrInvalid) {
		t.Fatalf("refused without a field and what it may be: %v", err)
	}
}
