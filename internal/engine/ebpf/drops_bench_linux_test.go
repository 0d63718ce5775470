package ebpf

import (
	"math"
	"net"
	"testing"
	"time"

	"netemd/qdisc"
)

// BenchmarkRecordDrops is what a record costs the sender of a packet that is dropped: turns
// of 5,000 datagrams with and without a recorder, the least of each, since others use the
// machine too.
func BenchmarkRecordDrops(b *testing.B) {
	l, e := newLab(b), newEngine(b, Config{})
	set(b, e, l.place, qdisc.Netem{Loss: 100})
	var out *net.UDPConn
	l.in(b, l.client, func() (err error) {
		out, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(server4), Port: port})
		return err
	})
	defer out.Close()
	packet := make([]byte, 64)
	turn := func() float64 {
		const n = 5000
		start := time.Now()
		for range n {
			_, _ = out.Write(packet)
		}
		return float64(time.Since(start).Nanoseconds()) / n
	}
	without, with := math.Inf(1), math.Inf(1)
	recorded := 0
	for b.Loop() {
		without = min(without, turn())
		r, err := e.RecordDrops()
		if err != nil {
			b.Fatal(err)
		}
		with = min(with, turn())
		records, _, err := r.Drain(ctx)
		if err != nil {
			b.Fatal(err)
		}
		recorded += len(records)
		if err := r.Close(); err != nil {
			b.Fatal(err)
		}
	}
	if recorded == 0 {
		b.Error("nothing was recorded")
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(without, "ns/dropped")
	b.ReportMetric(with, "ns/recorded")
	b.ReportMetric(with-without, "ns/record")
}
