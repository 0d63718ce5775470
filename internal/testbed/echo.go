package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"netemd/probe/tcp"
	"netemd/probe/udp"
)

// EchoServer answers at a TCP and a UDP port until ctx ends, and closes both.
//
// TCP: a connection gets back what it sends, as long as it sends; one that begins with
// the magic of tcp.Header gets the transfers that it asks for instead. A connection that
// begins with a byte 0 and no such magic is an echo after HeaderSize bytes, or at its end.
//
// UDP: packets of a probe come back with the server's stamps, others as they are.
func EchoServer(ctx context.Context, l net.Listener, packets *net.UDPConn) error {
	var (
		connections sync.WaitGroup
		mu          sync.Mutex
		open        = map[net.Conn]bool{}
	)
	failed := make(chan error, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			connections.Go(func() {
				defer func() {
					mu.Lock()
					delete(open, c)
					mu.Unlock()
					_ = c.Close()
				}()
				echoTCP(c)
			})
		}
	}()
	go func() { failed <- udp.Serve(packets) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	_ = l.Close()
	_ = packets.Close()
	for range 2 {
		if err != nil {
			err = fmt.Errorf("echo: %w", err)
			break
		}
		if e := <-failed; !errors.Is(e, net.ErrClosed) {
			err = e
		}
	}
	mu.Lock()
	for c := range open {
		_ = c.Close()
	}
	mu.Unlock()
	connections.Wait()
	return err
}

// EchoAtPort is EchoServer with UDP at the port at which l listens.
func EchoAtPort(ctx context.Context, l net.Listener) error {
	at, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return fmt.Errorf("echo: no TCP listener: %v", l.Addr())
	}
	packets, err := net.ListenUDP("udp", &net.UDPAddr{IP: at.IP, Port: at.Port, Zone: at.Zone})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return EchoServer(ctx, l, packets)
}

func echoTCP(c net.Conn) {
	b := make([]byte, 64<<10)
	n, err := c.Read(b[:tcp.HeaderSize])
	if n > 0 && b[0] == 0 { // perhaps a header, perhaps in pieces
		var more int
		more, err = io.ReadFull(c, b[n:tcp.HeaderSize])
		n += more
		if _, no := tcp.ParseHeader(b[:n]); no == nil {
			_ = tcp.Serve(c, b[:n]) // a client that has gone is nobody to tell
			return
		}
	}
	if _, werr := c.Write(b[:n]); werr != nil || err != nil {
		return
	}
	_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, b) // a client that has gone is nobody to tell
}
