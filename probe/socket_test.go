package probe

import (
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// peer is a server that echoes, one connection at a time.
func peer(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-done })
	return l.Addr().String()
}

func TestSocketReused(t *testing.T) {
	s := NewSocket()
	c, err := s.Dial(t.Context(), "tcp", peer(t))
	if err != nil {
		t.Fatal(err)
	}
	ask := func() {
		t.Helper()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	p := Phases{Socket: s}
	p.Begin(PhaseAuth)
	ask()
	ask()
	p.Begin(PhaseQuery)
	ask()
	phases := p.End(Now())
	if len(phases) != 2 || phases[0].Turns != 2 || phases[1].Turns != 1 || phases[1].NS <= 0 {
		t.Errorf("phases %+v, want auth with 2 turns, query with 1", phases)
	}
	var first, second, third Sample
	s.Record(&first)
	if first.Turns != 3 || first.Reused || first.ConnectNS <= 0 || !first.Remote.IsValid() {
		t.Errorf("first %+v, want a handshake and 3 turns", first)
	}
	s.Begin()
	ask()
	s.Record(&second)
	if second.Turns != 1 || !second.Reused || second.ConnectNS != 0 || second.Local != first.Local {
		t.Errorf("second %+v, want the same connection, no handshake, 1 turn", second)
	}
	_ = c.Close()
	_ = c.Close()
	s.Begin()
	if s.Record(&third); runtime.GOOS == "linux" && (third.Info == nil || third.Info.RTTNS <= 0) {
		t.Errorf("closed: TCP_INFO %+v, want the last one", third.Info)
	}
	if _, err := s.Dial(t.Context(), "tcp", "127.0.0.1:1"); err != ErrOneConnection { //nolint:errorlint // as it is
		t.Errorf("second dial: %v", err)
	}
}

// TestCountsOfACall: what the connection had sent again before a call is not the call's,
// and no connect of a call that had none is blamed.
func TestCountsOfACall(t *testing.T) {
	info := TCPInfo{TotalRetransmits: 5, TotalRTO: 2, RTTNS: 9}
	info.since(TCPInfo{TotalRetransmits: 3, TotalRTO: 2, RTTNS: 1})
	if info != (TCPInfo{TotalRetransmits: 2, RTTNS: 9}) {
		t.Errorf("%+v", info)
	}
	end := netip.MustParseAddrPort("127.0.0.1:1")
	list := []Sample{{StartNS: 1, EndNS: int64(time.Second), Reused: true, Local: end, Remote: end, Info: &TCPInfo{TotalRetransmits: 1, TotalRTO: 1}}}
	if Attribute(list, nil, Attribution{}); list[0].Cause != RTO {
		t.Errorf("cause %q, want %q", list[0].Cause, RTO)
	}
}
