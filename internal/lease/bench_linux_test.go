package lease

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/offload"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// BenchmarkApply is an apply and a clear without an engine, so what is left is the books
// and, of the loss only, the offload settings of both ends of a veth.
func BenchmarkApply(b *testing.B) {
	testenv.Root(b)
	name := fmt.Sprintf("nt-lease-%d", os.Getpid())
	if err := namespaces.Create(name); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = namespaces.Delete(name) })
	if err := namespaces.CreateVeth(namespaces.VethEnd{Namespace: name, Name: "v0"}, namespaces.VethEnd{Namespace: name, Name: "v1"}); err != nil {
		b.Fatal(err)
	}
	e := newFakeEngine()
	m := New(Config{
		Engines: map[fault.Engine]Engine{fault.EBPF: e},
		Choose:  func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "test", nil },
		Resolve: func(ctx context.Context, s fault.Spec) (target.Target, error) {
			return target.Target{To: target.Place{Namespace: name, Device: "v0", Hook: target.Egress}}, nil
		},
		Offloads: offload.New(b.TempDir()), Log: slog.New(slog.DiscardHandler),
	})
	defer func() { _ = m.Close(b.Context()) }()
	for what, n := range map[string]qdisc.Netem{"delay": {Delay: time.Millisecond}, "loss": {Loss: 5}} {
		b.Run(what, func(b *testing.B) {
			for b.Loop() {
				f, err := m.Apply(b.Context(), fault.Spec{Target: "x", Owner: "uid 0", Packet: &n})
				if err == nil {
					_, err = m.Clear(b.Context(), fault.Selector{ID: f.ID}, "")
				}
				if err != nil {
					b.Fatal(err)
				}
				e.done()
			}
		})
	}
}
