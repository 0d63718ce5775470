package load

import (
	"context"
	"errors"
	"net"
	"runtime"
	"testing"
	"time"

	"netemd/probe"
	"netemd/probe/tcp"
	"netemd/probe/udp"
)

// asked is the rate that the open loop is to keep.
const asked = 20_000

// BenchmarkOpenLoop keeps 20,000 calls a second for 5 s, of a caller that does nothing
// and of an echo of 64 bytes over kept TCP connections on loopback, whose server is in
// the same process. It says what was reached, how late calls began, and what a sample
// costs in all: the processor time and the memory of loop, call and record. The prober's
// child runs at a nice value of -10: on a busy machine so should this.
func BenchmarkOpenLoop(b *testing.B) {
	b.Run("stub", func(b *testing.B) {
		openLoop(b, callerFunc(func(_ context.Context, seq int) probe.Sample {
			now := probe.Now()
			return probe.Sample{Seq: seq, StartNS: now, EndNS: now, Class: probe.OK}
		}))
	})
	b.Run("tcp", func(b *testing.B) {
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
					buf := make([]byte, 1<<10)
					for {
						n, err := c.Read(buf)
						if err != nil {
							return
						}
						if _, err := c.Write(buf[:n]); err != nil {
							return
						}
					}
				}()
			}
		}()
		c := &tcp.Probe{Address: l.Addr().(*net.TCPAddr).AddrPort(), Mode: "echo", Bytes: 64, Keep: true}
		defer c.Close()
		openLoop(b, c)
	})
}

// BenchmarkOpenLoopUDP is the same with numbered packets.
func BenchmarkOpenLoopUDP(b *testing.B) {
	s, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- udp.Serve(s) }()
	defer func() {
		if err := <-served; !errors.Is(err, net.ErrClosed) && err != nil {
			b.Error(err)
		}
	}()
	defer s.Close()
	c := &udp.Probe{Address: s.LocalAddr().(*net.UDPAddr).AddrPort()}
	defer c.Close()
	openLoop(b, c)
}

func openLoop(b *testing.B, c probe.Caller) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2)) // as in the prober's child
	var o Options
	if s, ok := c.(probe.Starter); ok {
		o.Starter = s
	}
	r := probe.Request{Kind: probe.KindTCP, Duration: 6 * time.Second, Warmup: time.Second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: asked, To: asked}}}}
	for range b.N {
		rec := probe.NewRecorder("stub", probe.LayerDirect, probe.SlowThreshold)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		cpu := processorTime(b)
		l, err := Run(b.Context(), c, r, o, rec.Add)
		if err != nil {
			b.Fatal(err)
		}
		cpu = processorTime(b) - cpu
		runtime.ReadMemStats(&after)
		s := rec.Summary("")
		rec.Finish(&s, l)
		if s.OK == 0 {
			b.Fatalf("no call succeeded: %v", s.Errors)
		}
		b.ReportMetric(l.Achieved, "calls/s")
		b.ReportMetric(*s.Load.LagP50*1e3, "lag-p50-us")
		b.ReportMetric(*s.Load.LagP99*1e3, "lag-p99-us")
		b.ReportMetric(*s.Load.LagMax*1e3, "lag-max-us")
		b.ReportMetric(*s.P50*1e3, "p50-us")
		b.ReportMetric(float64(cpu)/float64(l.Started), "cpu-ns/sample")
		b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(l.Started), "B/sample")
		b.ReportMetric(float64(s.Count-s.OK), "failed")
	}
}
