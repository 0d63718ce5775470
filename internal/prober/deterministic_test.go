package prober

import (
	"context"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"netemd/probe"
	"netemd/probe/policy"
)

// answering serves each connection with f, and counts them.
func answering(t *testing.T, f func(*net.TCPConn)) (at netip.AddrPort, accepted *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	accepted = new(atomic.Int64)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			go f(c.(*net.TCPConn)) //nolint:forcetypeassert // a TCP listener's
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort(), accepted //nolint:forcetypeassert // the same
}

func samplesOf(t *testing.T, o Order) []probe.Sample {
	t.Helper()
	var samples []probe.Sample
	if e := o.run(context.Background(), func(s probe.Sample) { samples = append(samples, s) }); e.Error != "" {
		t.Fatal(e.Error)
	}
	return samples
}

// TestHangEndsWithTheBudget: a server that accepts and says nothing costs a caller its
// budget and no more. A busy machine may be late, so the bound has to hold once in three
// runs; that the call is a timeout, and not before its budget, always.
func TestHangEndsWithTheBudget(t *testing.T) {
	const budget, slack, tries = 500 * time.Millisecond, 200 * time.Millisecond, 3
	until := make(chan struct{})
	defer close(until)
	at, _ := answering(t, func(c *net.TCPConn) {
		<-until
		_ = c.Close()
	})
	for i := 1; ; i++ {
		s := samplesOf(t, Order{Address: at, Request: probe.Request{Kind: probe.KindHTTP, Count: 1, Timeout: budget}})
		if len(s) != 1 || s[0].Class != probe.Timeout || s[0].Duration() < budget {
			t.Fatalf("samples %+v, want one that timed out after %v", s, budget)
		}
		if took := s[0].Duration(); took <= budget+slack {
			return
		} else if i == tries {
			t.Fatalf("it took %v, want at most %v", took, budget+slack)
		}
	}
}

// TestResetsAreTriedAsOftenAsThePolicySays: every connection is reset, so each attempt
// must be seen as that, and there are as many as the policy allows, at the server too.
func TestResetsAreTriedAsOftenAsThePolicySays(t *testing.T) {
	const attempts = 4
	at, accepted := answering(t, func(c *net.TCPConn) {
		_, _ = c.Read(make([]byte, 1)) // the request: the rest of it makes the close a reset
		_ = c.SetLinger(0)
		_ = c.Close()
	})
	s := samplesOf(t, Order{
		Address: at, Request: probe.Request{Kind: probe.KindHTTP, Count: 1},
		Policy: &policy.Policy{Name: "four", Retry: &policy.Retry{MaxAttempts: attempts, Backoff: policy.Fixed, Base: time.Millisecond}},
	})
	if len(s) != 1 || s[0].Class != probe.Reset || len(s[0].Attempts) != attempts {
		t.Fatalf("samples %+v, want one reset after %d attempts", s, attempts)
	}
	for i, a := range s[0].Attempts {
		if a.Class != probe.Reset {
			t.Errorf("attempt %d: %s (%s), want reset", i+1, a.Class, a.Error)
		}
	}
	if n := accepted.Load(); n != attempts {
		t.Errorf("the server saw %d connections, want %d", n, attempts)
	}
}
