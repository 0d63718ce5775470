package prober

import (
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"netemd/probe"
)

// BenchmarkProber is the whole way: a child that asks 20,000 times a second for 5 s, an
// echo of 64 bytes over kept TCP connections on loopback, and its samples made final in
// this process, which serves the echo too.
func BenchmarkProber(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 1<<10))
			}()
		}
	}()
	o := Order{Address: l.Addr().(*net.TCPAddr).AddrPort(), Request: probe.Request{
		Kind: probe.KindTCP, TCP: probe.TCPOptions{Mode: "echo", Keep: true}, Duration: 6 * time.Second, Warmup: time.Second,
		Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 20_000, To: 20_000}}},
	}}
	for range b.N {
		f := newFlow(Config{Order: o, Keep: -1}, probe.Attribution{Longest: 5 * time.Second, Threshold: probe.SlowThreshold}, func(error) {})
		f.start()
		e, err := run(b.Context(), "", childName, o, mute, f.take)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.stop(); err != nil {
			b.Fatal(err)
		}
		s := f.result("", e).Summary
		if s.OK == 0 {
			b.Fatalf("no call succeeded: %v", s.Errors)
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(s.Load.Achieved, "calls/s")
		b.ReportMetric(float64(s.Count-s.OK), "failed")
		b.ReportMetric(*s.Load.LagP50*1e3, "lag-p50-us")
		b.ReportMetric(*s.Load.LagP99*1e3, "lag-p99-us")
		b.ReportMetric(*s.P50*1e3, "p50-us")
		b.ReportMetric(float64(m.HeapInuse), "heap-B")
	}
}
