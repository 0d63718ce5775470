package udp

import (
	"testing"
	"time"

	"netemd/probe"
)

func begin(p *Probe, seq int, budget time.Duration) chan probe.Sample {
	got := make(chan probe.Sample, 2)
	p.Start(probe.Sample{Seq: seq, DueNS: 7, Warmup: true}, probe.Now()+int64(budget), func(s probe.Sample) { got <- s })
	return got
}

// TestStart: started calls are questions as Call's are: answered, lost, refused, cut off.
func TestStart(t *testing.T) {
	at := between(t, serve(t), func(n int, b []byte, send func([]byte)) {
		if n != 1 && n != 3 {
			send(b)
		}
	}, pass)
	p := &Probe{Address: at}
	t.Cleanup(func() { _ = p.Close() })
	for i := range 3 {
		budget := 10 * time.Second
		if i == 1 {
			budget = 100 * time.Millisecond
		}
		before := probe.Now()
		s := <-begin(p, i, budget)
		if s.Seq != i || s.DueNS != 7 || !s.Warmup || !s.Local.IsValid() {
			t.Errorf("sample %+v, want call %d's", s, i)
		}
		if i == 1 {
			if s.Class != probe.Timeout || time.Duration(s.EndNS-before) < budget || s.UDP != nil {
				t.Errorf("sample %+v, want a timeout", s)
			}
		} else if s.Class != probe.OK || s.UDP == nil || s.Bytes != DefaultBytes || s.Turns != 1 {
			t.Errorf("sample %+v, want an answer", s)
		}
	}
	hangs := begin(p, 3, time.Minute)
	p.CutOff()
	if s := <-hangs; s.Class != probe.Other {
		t.Errorf("sample %+v, want one that was cut off", s)
	}
	if s := <-begin(p, 4, time.Minute); s.Class == probe.Timeout {
		t.Errorf("sample %+v, want one that was cut off, or answered", s)
	}
	if d := p.Datagrams(); d.Sent != 5 || d.Lost != 2 || d.LostThere != 2 || d.Answered+d.Late != 3 {
		t.Errorf("%+v, want 2 of 5 lost on the way there", d)
	}
}
