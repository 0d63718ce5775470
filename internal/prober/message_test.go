package prober

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"testing"

	"netemd/probe"
)

// typical is a call to a database as its sample is.
func typical(i int) probe.Sample {
	return probe.Sample{
		Seq: i, DueNS: int64(i) * 50_000, StartNS: int64(i)*50_000 + 3000, EndNS: int64(i)*50_000 + 900_000, ConnectNS: 40_000, Turns: 5, Class: probe.OK,
		Local: netip.MustParseAddrPort("10.77.0.1:40000"), Remote: netip.MustParseAddrPort("10.77.0.2:5432"),
		Info:   &probe.TCPInfo{RTONS: 201_000_000, RTTNS: 45_000},
		Phases: []probe.Phase{{Name: probe.PhaseConnect, NS: 40_000}, {Name: probe.PhaseAuth, NS: 300_000, Turns: 3}, {Name: probe.PhaseQuery, NS: 200_000, Turns: 2}},
	}
}

// BenchmarkMessages is what it costs to hand a sample from the child to the agent, both
// ends together: as it is done, and as lines of JSON.
func BenchmarkMessages(b *testing.B) {
	b.Run("gob", func(b *testing.B) {
		var buf bytes.Buffer
		enc, dec := gob.NewEncoder(&buf), gob.NewDecoder(&buf)
		size := 0
		for i := 0; i < b.N; i += 64 {
			m := message{}
			for j := range 64 {
				m.Samples = append(m.Samples, typical(i+j))
			}
			if err := enc.Encode(m); err != nil {
				b.Fatal(err)
			}
			size = buf.Len()
			var got message
			if err := dec.Decode(&got); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(size)/64, "B/sample")
	})
	b.Run("json", func(b *testing.B) {
		var buf bytes.Buffer
		enc, dec := json.NewEncoder(&buf), json.NewDecoder(&buf)
		size := 0
		for i := range b.N {
			if err := enc.Encode(typical(i)); err != nil {
				b.Fatal(err)
			}
			size = buf.Len()
			var got probe.Sample
			if err := dec.Decode(&got); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(size), "B/sample")
	})
}

// parent is who reads, or does not any more.
type parent struct {
	w    io.Writer
	fail bool
}

func (s *parent) Write(b []byte) (int, error) {
	if s.fail {
		return 0, errors.New("nobody reads")
	}
	return s.w.Write(b)
}

// TestWrite: all samples come before the end, whatever waits when it comes, and a parent
// that is gone blocks nobody.
func TestWrite(t *testing.T) {
	for _, gone := range []bool{false, true} {
		var out bytes.Buffer
		samples, last := make(chan probe.Sample, queued), make(chan end, 1)
		written := make(chan error, 1)
		go func() { written <- write(&parent{w: &out, fail: gone}, samples, last) }()
		const n = 3 * queued
		for i := range n {
			samples <- typical(i)
		}
		last <- end{Load: probe.Load{Started: n}}
		if err := <-written; (err != nil) != gone {
			t.Fatalf("gone %t: error %v", gone, err)
		}
		if gone {
			continue
		}
		var got []probe.Sample
		e, err := read(&out, func(s []probe.Sample) { got = append(got, s...) })
		if err != nil || e.Load.Started != n || len(got) != n || got[n-1].Seq != n-1 {
			t.Errorf("%d samples, %+v, %v; want %d", len(got), e, err, n)
		}
	}
}
