package ebpf

import (
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"netemd/internal/content"
)

// ruleModes are what the benchmarks compare in turns, on one device; bare has no rule.
var ruleModes = []struct {
	name string
	rule *content.Rule
}{
	{"bare", nil},
	{"never-hits", &content.Rule{Kind: content.SYN}},
	{"expression", &content.Rule{Kind: content.Match, Expr: `payload.at(0, "no such text") || ip.ttl == 3`}},
	{"per-connection", &content.Rule{Kind: content.Every, N: 1 << 31, PerConnection: true}},
	{"data", &content.Rule{Kind: content.Data, N: 1 << 31}},
}

// BenchmarkRulePackets sends 64-byte datagrams as fast as one thread can.
func BenchmarkRulePackets(b *testing.B) {
	l, e := newLab(b), newEngine(b, Config{})
	var in4, out *net.UDPConn
	l.in(b, l.server, func() (err error) {
		in4, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(server4), Port: port})
		return err
	})
	defer in4.Close()
	l.in(b, l.client, func() (err error) {
		out, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(server4), Port: port})
		return err
	})
	defer out.Close()
	packet := make([]byte, 64)
	turns(b, l, e, "packets/s", func() float64 {
		const n = 20_000
		start := time.Now()
		for range n {
			_, _ = out.Write(packet)
		}
		return n / time.Since(start).Seconds()
	})
}

// BenchmarkRuleTCP sends a stream, in super-packets.
func BenchmarkRuleTCP(b *testing.B) {
	l, e := newLab(b), newEngine(b, Config{})
	client, peer := l.connect(b, server4)
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	chunk := make([]byte, 256<<10)
	turns(b, l, e, "Gbit/s", func() float64 {
		const n = 200
		start := time.Now()
		for range n {
			if _, err := client.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		return n * float64(len(chunk)) * 8 / 1e9 / time.Since(start).Seconds()
	})
}

// turns has each mode do the work in every round, and reports the medians: of bare's
// rate, and of each other's rate against bare's of the same round.
func turns(b *testing.B, l *lab, e *Engine, unit string, work func() float64) {
	b.Helper()
	rates := map[string][]float64{}
	work() // warm
	for b.Loop() {
		bare := 0.0
		for _, m := range ruleModes {
			if m.rule != nil {
				rule(b, e, l.place, *m.rule)
			}
			rate := work()
			if m.rule == nil {
				bare = rate
			} else {
				clearRule(b, e, l.place, *m.rule)
				rate /= bare
			}
			rates[m.name] = append(rates[m.name], rate)
		}
	}
	b.ReportMetric(0, "ns/op")
	for _, m := range ruleModes {
		r := slices.Sorted(slices.Values(rates[m.name]))
		name := m.name + "/bare"
		if m.rule == nil {
			name = unit
		}
		b.ReportMetric(r[len(r)/2], name)
	}
}
