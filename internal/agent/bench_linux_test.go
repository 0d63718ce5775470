package agent

import (
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// BenchmarkApply is an apply and a clear over the socket, at a device that is not
// netemd's own and has a first fault already: of a delay, for which no offload settings
// are read, and of a loss.
func BenchmarkApply(b *testing.B) {
	x, y := netns(b, "x"), netns(b, "y")
	pair(b, x, y)
	c := serve(b)
	apply(b, c, fault.Spec{Selector: ports(x, target.Port(5000)), Packet: &qdisc.Netem{Delay: time.Millisecond}})
	for name, n := range map[string]qdisc.Netem{"delay": {Delay: time.Millisecond}, "loss": {Loss: 5}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				f := apply(b, c, fault.Spec{Selector: ports(x, target.Port(5001)), Packet: &n})
				if _, err := c.Clear(b.Context(), fault.Selector{ID: f.ID}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
