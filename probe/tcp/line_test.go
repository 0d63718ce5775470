package tcp

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"netemd/probe"
)

// started makes a call by Start and waits for it.
func started(t *testing.T, p *Probe, seq int, budget time.Duration) (probe.Sample, time.Duration) {
	t.Helper()
	got := make(chan probe.Sample, 2)
	at := time.Now()
	p.Start(probe.Sample{Seq: seq, DueNS: 7, Warmup: true}, probe.Now()+int64(budget), func(s probe.Sample) { got <- s })
	s := <-got
	took := time.Since(at)
	if len(got) > 0 {
		t.Error("a call ended twice")
	}
	if s.Seq != seq || s.DueNS != 7 || !s.Warmup || s.Remote != p.Address || s.EndNS < s.StartNS {
		t.Errorf("sample %+v, want call %d's", s, seq)
	}
	return s, took
}

// TestStart: what is started is an echo as Call makes it, on one connection.
func TestStart(t *testing.T) {
	s := serve(t, echoes)
	p := &Probe{Address: s.addr, Mode: Echo, Keep: true}
	t.Cleanup(func() { _ = p.Close() })
	if !p.Startable() || (&Probe{Mode: Echo}).Startable() || (&Probe{Mode: Echo, Keep: true, Bytes: atOnce + 1}).Startable() {
		t.Error("startable: want kept echoes of at most 8 KiB")
	}
	for i := range 20 {
		x, _ := started(t, p, i, 5*time.Second)
		if x.Class != probe.OK || x.Bytes != 64 || x.Turns != 1 || x.Reused != (i > 0) || x.Info == nil || x.Info.TotalRetransmits != 0 || !x.Local.IsValid() {
			t.Errorf("sample %+v, want an echo", x)
		}
		var names []string
		turns, sum := 0, int64(0)
		for _, ph := range x.Phases {
			names = append(names, ph.Name)
			turns += ph.Turns
			sum += ph.NS
		}
		want := "send first_byte body"
		if i == 0 {
			want = "connect " + want
		}
		if strings.Join(names, " ") != want || turns != 1 || i > 0 && sum < int64(x.Duration())*9/10 && x.Duration() > time.Millisecond {
			t.Errorf("phases %+v of %v, want %s", x.Phases, x.Duration(), want)
		}
	}
	if n := s.connections.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// TestStartEnds: a started call ends as it has to, whatever its peer does.
func TestStartEnds(t *testing.T) {
	// after one echo the server does it
	after := func(f func(c *net.TCPConn)) func(*net.TCPConn) {
		return func(c *net.TCPConn) {
			if _, err := io.CopyN(struct{ io.Writer }{c}, struct{ io.Reader }{c}, DefaultEchoBytes); err == nil {
				f(c)
			}
		}
	}
	read := func(c *net.TCPConn) { _, _ = io.ReadFull(c, make([]byte, DefaultEchoBytes)) }
	tests := []struct {
		name  string
		do    func(c *net.TCPConn)
		class probe.Class
		error string
		whole bool // it takes the budget
	}{
		{"silent", func(c *net.TCPConn) { read(c); _, _ = c.Read(make([]byte, 1)) }, probe.Timeout, "0 of 64 bytes came back", true},
		{"half", func(c *net.TCPConn) {
			b := make([]byte, DefaultEchoBytes)
			_, _ = io.ReadFull(c, b)
			_, _ = c.Write(b[:10])
			_, _ = c.Read(b)
		}, probe.Timeout, "10 of 64 bytes came back", true},
		{"closes", func(c *net.TCPConn) { read(c) }, probe.EOF, "0 of 64 bytes came back", false},
		{"resets", func(c *net.TCPConn) { read(c); _ = c.SetLinger(0) }, probe.Reset, "connection reset", false},
		{"lies", func(c *net.TCPConn) { read(c); _, _ = c.Write(make([]byte, DefaultEchoBytes)) }, probe.Protocol, "differs", false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, after(test.do))
			p := &Probe{Address: s.addr, Mode: Echo, Keep: true}
			defer p.Close()
			const budget = 300 * time.Millisecond
			if x, _ := started(t, p, 0, 5*time.Second); x.Class != probe.OK {
				t.Fatalf("the first: %+v", x)
			}
			x, took := started(t, p, 1, budget)
			if x.Class != test.class || !strings.Contains(x.Error, test.error) || !x.Reused {
				t.Errorf("sample %+v, want %s: %s", x, test.class, test.error)
			}
			if test.whole && (took < budget || took > 10*budget) || !test.whole && took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if x, _ := started(t, p, 2, 5*time.Second); x.Class != probe.OK || x.Reused {
				t.Errorf("the next one: %+v, want an echo on a connection of its own", x)
			}
		})
	}
}

// TestStartOnABrokenLine: what happened to a connection meanwhile is the next call's.
func TestStartOnABrokenLine(t *testing.T) {
	closed := make(chan struct{})
	s := serve(t, func(c *net.TCPConn) {
		_, _ = io.CopyN(struct{ io.Writer }{c}, struct{ io.Reader }{c}, DefaultEchoBytes)
		_ = c.Close()
		closed <- struct{}{}
	})
	p := &Probe{Address: s.addr, Mode: Echo, Keep: true}
	defer p.Close()
	if x, _ := started(t, p, 0, 5*time.Second); x.Class != probe.OK {
		t.Fatalf("the first: %+v", x)
	}
	<-closed
	x, _ := started(t, p, 1, 5*time.Second)
	if x.Class != probe.EOF && x.Class != probe.Reset {
		t.Errorf("sample %+v, want the end of the connection", x)
	}
	go func() { <-closed }()
	if x, _ := started(t, p, 2, 5*time.Second); x.Class != probe.OK || x.Reused {
		t.Errorf("the next one: %+v", x)
	}
}

// TestCutOff: what is under way ends at once, also what is begun after it.
func TestCutOff(t *testing.T) {
	s := serve(t, func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	p := &Probe{Address: s.addr, Mode: Echo, Keep: true}
	defer p.Close()
	got := make(chan probe.Sample, 3)
	for i := range 2 {
		p.Start(probe.Sample{Seq: i}, probe.Now()+int64(time.Minute), func(s probe.Sample) { got <- s })
	}
	p.CutOff()
	p.Start(probe.Sample{Seq: 2}, probe.Now()+int64(time.Minute), func(s probe.Sample) { got <- s })
	limit := time.After(10 * time.Second)
	for range 3 {
		select {
		case s := <-got:
			if s.Class == probe.OK {
				t.Errorf("sample %+v, want one that was cut off", s)
			}
		case <-limit:
			t.Fatal("a call was not cut off")
		}
	}
}
