package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// flow is UDP to a port at a device.
func flow(ns, device string, port int) *target.Selector {
	return &target.Selector{Namespace: ns, Device: device, Protocol: 17, PeerPorts: []target.Ports{target.Port(uint16(port))}}
}

// BenchmarkApply is an apply and a clear over the socket until each is acknowledged, a tc
// process for the same, and one rtnetlink request, turn and turn about. "armed" is at a
// flow that has another fault already, with which it combines, "flow" at one of its own
// at a device where another flow has a fault, and "loss" is that with the offload settings
// of both ends of the veth read. "nothing" is a call over the socket that does nothing.
// times-faster is the median of tc by that of netemd.
func BenchmarkApply(b *testing.B) {
	ns := pairs(b, 1)
	p := newPlain(b, ns)
	c := start(b, "")
	if _, err := c.Apply(b.Context(), fault.Spec{Selector: flow(ns, "v0", 5000), Packet: &qdisc.Netem{Duplicate: 1}}); err != nil {
		b.Fatal(err)
	}
	for _, bench := range []struct {
		name string
		port int
		n    qdisc.Netem
	}{
		{"armed", 5000, qdisc.Netem{Delay: time.Millisecond}},
		{"flow", 5001, qdisc.Netem{Delay: time.Millisecond}},
		{"loss", 5002, qdisc.Netem{Loss: 5}},
	} {
		b.Run(bench.name+"/"+p.kind, func(b *testing.B) {
			t := times{}
			for b.Loop() {
				var f fault.Fault
				t.take(b, "nothing", func(ctx context.Context) error {
					_, err := c.Version(ctx)
					return err
				})
				t.take(b, "apply", func(ctx context.Context) (err error) {
					f, err = c.Apply(ctx, fault.Spec{Selector: flow(ns, "v0", bench.port), Packet: &bench.n})
					return err
				})
				t.take(b, "clear", func(ctx context.Context) error {
					_, err := c.Clear(ctx, fault.Selector{ID: f.ID})
					return err
				})
				t.take(b, "tc-set", p.tcSet)
				t.take(b, "tc-clear", p.tcClear)
				t.take(b, "raw-set", p.set)
				t.take(b, "raw-clear", p.clear)
			}
			t.report(b, .5, .99)
			b.ReportMetric(t.quantile("tc-set", .5)/t.quantile("apply", .5), "times-faster")
		})
	}
}

// BenchmarkApply1000 is 1,000 faults at as many flows in one call, and their clear in one
// call; and as many rtnetlink requests. Each flow has a program of its own, which is loaded
// and attached. A hook of a device takes 64 programs at most (BPF_MPROG_MAX of the kernel's
// mprog.h), so the flows are at 20 devices.
func BenchmarkApply1000(b *testing.B) {
	const devices, flows, faults = 20, 50, 1000
	ns := pairs(b, devices)
	p := newPlain(b, ns)
	c := start(b, "limits: {faults: 2000, faults_per_owner: 2000}\n")
	specs := make([]fault.Spec, faults)
	for i := range specs {
		specs[i] = fault.Spec{Selector: flow(ns, fmt.Sprint("v", i/flows), 5000+i%flows), Packet: &qdisc.Netem{Loss: 5}}
	}
	t := times{}
	for b.Loop() {
		t.take(b, "apply-all", func(ctx context.Context) error {
			made, err := c.ApplyAll(ctx, specs)
			if err == nil && len(made) != faults {
				b.Fatalf("%d faults were made", len(made))
			}
			return err
		})
		t.take(b, "clear-all", func(ctx context.Context) error {
			cleared, err := c.Clear(ctx, fault.Selector{All: true})
			if err == nil && len(cleared) != faults {
				b.Fatalf("%d faults were cleared", len(cleared))
			}
			return err
		})
		t.take(b, "raw-all", func(ctx context.Context) error {
			for range faults {
				if err := p.set(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err := p.clear(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	t.report(b, .5)
	b.ReportMetric(t.quantile("apply-all", .5)/faults, "us/apply")
	b.ReportMetric(t.quantile("apply-all", .5)/t.quantile("raw-all", .5), "times-raw")
}
