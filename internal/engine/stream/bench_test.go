package stream

import (
	"context"
	"net"
	"testing"
	"time"

	"netemd/internal/fault"
)

// BenchmarkRoundTrip is what the proxy costs each turn of a conversation: one byte
// to an echo server and back, on an open connection, without and with a toxic that
// does nothing to speak of.
func BenchmarkRoundTrip(b *testing.B) {
	server := upstream(b, echo)
	p := startProxy(b, server)
	run := func(b *testing.B, address string) {
		c, err := net.Dial("tcp", address)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		buffer := []byte{0}
		for b.Loop() {
			if _, err := c.Write(buffer); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Read(buffer); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, server) })
	b.Run("proxy", func(b *testing.B) { run(b, p.address) })
	set(b, p, fault.Toxic{Kind: fault.Bandwidth, Rate: 100_000_000_000})
	b.Run("proxy with a bandwidth of 800gbit", func(b *testing.B) { run(b, p.address) })
}

// BenchmarkConnect is the same for a connection that serves one call.
func BenchmarkConnect(b *testing.B) {
	server := upstream(b, echo)
	p := startProxy(b, server)
	run := func(b *testing.B, address string) {
		for b.Loop() {
			c, err := net.Dial("tcp", address)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := roundTrip(c, "x"); err != nil {
				b.Fatal(err)
			}
			c.Close()
		}
	}
	b.Run("direct", func(b *testing.B) { run(b, server) })
	b.Run("proxy", func(b *testing.B) { run(b, p.address) })
}

// BenchmarkSetClear is one fault from the order to the end: set, read back, clear,
// read back.
func BenchmarkSetClear(b *testing.B) {
	p := startProxy(b, upstream(b, echo))
	e, deadline := New(Config{}), time.Now().Add(time.Hour)
	for b.Loop() {
		if err := e.Set(context.Background(), p.socket, []fault.Toxic{latency}, deadline); err != nil {
			b.Fatal(err)
		}
		if err := e.Clear(context.Background(), p.socket); err != nil {
			b.Fatal(err)
		}
	}
}
