package netem

import (
	"testing"
	"time"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// BenchmarkLife is what applying, changing and clearing cost, on a device of ours and
// on one of somebody else, beside a process of tc that changes a root. It needs netem.
func BenchmarkLife(b *testing.B) {
	testenv.Netem(b)
	bench := newBench(b)
	e := detourEngine(b, bench.near)
	if err := e.Neutral(b.Context(), bench.place); err != nil {
		b.Fatal(err)
	}
	set := func(p target.Place, n qdisc.Netem) {
		if err := e.Set(b.Context(), p, n, time.Time{}); err != nil {
			b.Fatal(err)
		}
	}
	away := func(p target.Place) {
		if err := e.Clear(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
	foreign := bench.foreign(target.Egress, udp)
	for name, p := range map[string]target.Place{"owned": bench.place, "foreign": foreign} {
		b.Run(name+"/apply", func(b *testing.B) {
			for b.Loop() {
				set(p, qdisc.Netem{Delay: ms})
				b.StopTimer()
				away(p)
				e.drains.Wait()
				b.StartTimer()
			}
		})
		b.Run(name+"/change", func(b *testing.B) {
			set(p, qdisc.Netem{Delay: ms})
			for n := 0; b.Loop(); n++ {
				set(p, qdisc.Netem{Delay: ms * time.Duration(1+n%2)})
			}
			away(p)
			e.drains.Wait()
		})
		b.Run(name+"/clear", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				set(p, qdisc.Netem{Delay: ms})
				b.StartTimer()
				away(p)
				b.StopTimer()
				e.drains.Wait()
				b.StartTimer()
			}
		})
	}
	b.Run("tc/change", func(b *testing.B) {
		for n := 0; b.Loop(); n++ {
			delay := []string{"1ms", "2ms"}[n%2]
			if _, err := tcOf(bench.near, "qdisc", "change", "dev", "v0", "root", "netem", "delay", delay); err != nil {
				b.Fatal(err)
			}
		}
	})
}
