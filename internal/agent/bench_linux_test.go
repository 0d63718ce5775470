package agent

import (
	"fmt"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/offload"
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

// BenchmarkSweep is the look into 300 namespaces of others with which an agent starts.
func BenchmarkSweep(b *testing.B) {
	for i := range 300 {
		netns(b, fmt.Sprintf("sweep%d", i))
	}
	dir := b.TempDir()
	for b.Loop() {
		if _, err := sweep(b.Context(), dir, offload.New(dir), nil, true); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		time.Sleep(1500 * time.Millisecond) // what is kept open of a sweep is let go
		b.StartTimer()
	}
}
