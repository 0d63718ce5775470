package match

import (
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	"netemd/internal/target"
)

// BenchmarkClassifier is the cost of the kernel's program for one packet that belongs
// to the last of its flows, or of a match of all packets.
func BenchmarkClassifier(b *testing.B) {
	for _, packet := range []struct {
		name string
		frame
	}{
		{"IPv4", frame{source: a4, destination: b4, protocol: protoTCP, payload: ports(1000, 80)}},
		{"IPv6", frame{source: a6, destination: b6, protocol: protoTCP, payload: ports(1000, 80)}},
	} {
		for _, flows := range []int{0, 1, 8, 64} {
			var m target.Match
			for i := range flows {
				f := target.Flow{
					Protocol: protoTCP, DestinationPorts: target.Port(80),
					Source: prefix(fmt.Sprintf("10.2.%d.0/24", i)),
				}
				if packet.source.Is6() {
					f.Source = prefix(fmt.Sprintf("2001:db8:%d::/48", i+1))
				}
				if i == flows-1 {
					f.Source, _ = packet.source.Prefix(24)
				}
				m.Include = append(m.Include, f)
			}
			b.Run(fmt.Sprintf("%s/%d flows", packet.name, flows), func(b *testing.B) {
				measure(b, load(b, m, 14), packet.bytes())
			})
		}
		b.Run(packet.name+"/control", func(b *testing.B) {
			measure(b, load(b, target.Match{Control: true}, 14), packet.bytes())
		})
	}
}

// measure has the kernel repeat the program, so that one system call is for many runs.
func measure(b *testing.B, prog *ebpf.Program, packet []byte) {
	const repeat = 100_000
	if !runs(b, prog, packet) {
		b.Fatal("the packet is not selected")
	}
	var total float64
	for b.Loop() {
		_, each, err := prog.Benchmark(packet, repeat, nil)
		if err != nil {
			b.Fatal(err)
		}
		total += float64(each.Nanoseconds())
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(total/float64(b.N), "ns/packet")
}
