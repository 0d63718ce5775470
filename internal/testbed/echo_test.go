package testbed

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"netemd/probe"
	"netemd/probe/tcp"
	"netemd/probe/udp"
)

func TestEcho(t *testing.T) {
	at := netip.MustParseAddrPort(serve(t, EchoAtPort))
	for _, p := range []*tcp.Probe{
		{Address: at}, {Address: at, Mode: tcp.Echo, Keep: true}, {Address: at, Mode: tcp.Echo, Bytes: 300_000, Keep: true},
		{Address: at, Mode: tcp.Bulk, Bytes: 300_000, Keep: true}, {Address: at, Mode: tcp.Download, Bytes: 300_000, Keep: true},
	} {
		for i := range 3 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			if s := p.Call(ctx, i); s.Class != probe.OK || s.Reused != (p.Keep && i > 0) {
				t.Errorf("%s: %+v", p.Mode, s)
			}
			cancel()
		}
		_ = p.Close()
	}
	u := &udp.Probe{Address: at}
	if s := u.Call(t.Context(), 0); s.Class != probe.OK {
		t.Errorf("udp: %+v", s)
	}
	_ = u.Close()
}

// TestEchoOfAnything: what is no transfer comes back, also what looks like one at first,
// and a plain datagram too.
func TestEchoOfAnything(t *testing.T) {
	at := serve(t, EchoAtPort)
	for _, text := range []string{"x", "\x00", "\x00netem1", "\x00netem1X89012345", "\x00netem2S890123456 and more", "\x00" + string(make([]byte, 100_000))} {
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		go func() {
			_, _ = io.WriteString(c, text)
			_ = c.(*net.TCPConn).CloseWrite()
		}()
		got, err := io.ReadAll(c)
		if err != nil || string(got) != text {
			t.Errorf("%.20q came back as %.20q, %v", text, got, err)
		}
		_ = c.Close()
	}
	c, err := net.Dial("udp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = c.Write([]byte("hello"))
	b := make([]byte, 10)
	if n, err := c.Read(b); err != nil || !bytes.Equal(b[:n], []byte("hello")) {
		t.Errorf("%q, %v", b[:n], err)
	}
}
