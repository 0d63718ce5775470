package ebpf

import (
	"io"
	"net"
	"testing"
	"time"

	"netemd/qdisc"
)

func BenchmarkSet(b *testing.B) {
	for name, n := range map[string]qdisc.Netem{"drop": {Loss: 20}, "queue": {Loss: 20, Delay: ms}} {
		b.Run(name, func(b *testing.B) {
			l, e := newLab(b), newEngine(b, Config{})
			set(b, e, l.place, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n.Seed = uint64(i + 1)
				if err := e.Set(ctx, l.place, n, in(time.Minute)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkArm(b *testing.B) {
	for name, n := range map[string]qdisc.Netem{"drop": {Loss: 20}, "queue": {Loss: 20, Delay: ms}} {
		b.Run(name, func(b *testing.B) {
			l := newLab(b)
			for b.Loop() {
				b.StopTimer()
				e, err := New(Config{})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := e.Set(ctx, l.place, n, in(time.Minute)); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// modes are what the throughput benchmarks compare; bare has no engine at all.
var modes = []struct {
	name string
	n    *qdisc.Netem
}{
	{"bare", nil},
	{"drop 0%", &qdisc.Netem{}},
	{"queue whole", &qdisc.Netem{Delay: time.Microsecond}},
	{"queue frames", &qdisc.Netem{Delay: time.Microsecond, Duplicate: 0.0001}},
	{"queue whole 1ms", &qdisc.Netem{Delay: ms}},
}

// BenchmarkPackets sends 64-byte datagrams as fast as one thread can.
func BenchmarkPackets(b *testing.B) {
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			l, e := newLab(b), newEngine(b, Config{})
			if m.n != nil {
				set(b, e, l.place, *m.n)
			}
			var in, out *net.UDPConn
			l.in(b, l.server, func() (err error) {
				in, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(server4), Port: port})
				return err
			})
			defer in.Close()
			l.in(b, l.client, func() (err error) {
				out, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(server4), Port: port})
				return err
			})
			defer out.Close()
			_ = in.SetReadBuffer(64 << 20)
			packet := make([]byte, 64)
			start := time.Now()
			for b.Loop() {
				_, _ = out.Write(packet)
			}
			b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "packets/s")
			if m.n != nil {
				time.Sleep(100 * ms)
				if st, err := e.Read(ctx, l.place); err == nil {
					b.ReportMetric(100*float64(st.Counters.Overflow)/float64(b.N), "%overflow")
					b.ReportMetric(100*float64(st.Counters.Opened)/float64(b.N), "%opened")
				}
			}
		})
	}
}

func BenchmarkTCP(b *testing.B) {
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			l, e := newLab(b), newEngine(b, Config{})
			if m.n != nil {
				set(b, e, l.place, *m.n)
			}
			client, peer := l.connect(b, server4)
			go func() { _, _ = io.Copy(io.Discard, peer) }()
			chunk := make([]byte, 256<<10)
			b.SetBytes(int64(len(chunk)))
			start := time.Now()
			for b.Loop() {
				if _, err := client.Write(chunk); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*float64(len(chunk))*8/1e9/time.Since(start).Seconds(), "Gbit/s")
			if m.n != nil {
				if st, err := e.Read(ctx, l.place); err == nil {
					b.ReportMetric(float64(st.Counters.Overflow), "overflow")
					b.ReportMetric(float64(st.Counters.Opened), "opened")
				}
			}
		})
	}
}
