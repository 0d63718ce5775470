package e2e

import (
	"context"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"netemd/namespaces"
)

// traffic passes both pairs, v0 and w0, until ctx ends: datagrams both ways, 500 a second,
// and a TCP connection that is echoed.
func (g *ground) traffic(ctx context.Context, load *sync.WaitGroup) {
	g.t.Helper()
	for _, there := range []netip.Addr{thereFour, netip.MustParseAddr("10.81.0.2")} {
		here := there.Prev()
		a := g.open(g.here, netip.AddrPortFrom(here, 0), netip.AddrPortFrom(there, 7))
		b := g.open(g.there, netip.AddrPortFrom(there, 7), a.LocalAddr().(*net.UDPAddr).AddrPort())
		var l net.Listener
		err := namespaces.Do(ctx, g.there, func() (err error) {
			l, err = net.Listen("tcp", netip.AddrPortFrom(there, 8).String())
			return err
		})
		if err != nil {
			g.t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		load.Go(func() { datagrams(ctx, a, b) })
		load.Go(func() { sendBack(ctx, l) })
		load.Go(func() { g.stream(ctx, l.Addr().String()) })
	}
}

// datagrams sends both ways. What arrives is thrown away by the kernel when its buffer is
// full.
func datagrams(ctx context.Context, a, b *net.UDPConn) {
	defer a.Close()
	defer b.Close()
	packet := make([]byte, 200)
	for ctx.Err() == nil {
		_, _ = a.Write(packet)
		_, _ = b.Write(packet)
		time.Sleep(4 * time.Millisecond)
	}
}

// sendBack sends back what comes.
func sendBack(ctx context.Context, l net.Listener) {
	var conns sync.WaitGroup
	defer conns.Wait()
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		conns.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			_, _ = io.Copy(c, c)
		})
	}
}

// stream is a client that sends and receives, and connects anew when a fault stopped it.
func (g *ground) stream(ctx context.Context, to string) {
	data := make([]byte, 4096)
	for ctx.Err() == nil {
		var c net.Conn
		err := namespaces.Do(ctx, g.here, func() (err error) {
			c, err = net.DialTimeout("tcp", to, time.Second)
			return err
		})
		for err == nil && ctx.Err() == nil {
			_ = c.SetDeadline(time.Now().Add(time.Second))
			if _, err = c.Write(data); err == nil {
				_, err = io.ReadFull(c, data)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if c != nil {
			_ = c.Close()
		}
	}
}
