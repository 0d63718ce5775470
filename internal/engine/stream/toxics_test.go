package stream

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"netemd/internal/fault"
)

// set puts one toxic on p for a minute.
func set(tb testing.TB, p *process, toxics ...fault.Toxic) {
	tb.Helper()
	if err := New(Config{}).Set(context.Background(), p.socket, toxics, time.Now().Add(time.Minute)); err != nil {
		tb.Fatal(err)
	}
}

func TestToxics(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	timed := func(c net.Conn, message string) (string, time.Duration, error) {
		start := time.Now()
		got, err := roundTrip(c, message)
		return got, time.Since(start), err
	}

	t.Run("none", func(t *testing.T) {
		got, took, err := timed(dial(t, p.address), "hello")
		if got != "hello" || err != nil || took > 200*time.Millisecond {
			t.Fatalf("%q after %v: %v", got, took, err)
		}
	})
	for _, side := range []fault.StreamDirection{fault.Upstream, fault.Downstream} {
		t.Run("latency "+string(side), func(t *testing.T) {
			set(t, p, fault.Toxic{Kind: fault.Latency, Stream: side, Latency: 300 * time.Millisecond})
			got, took, err := timed(dial(t, p.address), "hello")
			if got != "hello" || err != nil || took < 300*time.Millisecond || took > time.Second {
				t.Fatalf("%q after %v: %v; want it after 300 ms", got, took, err)
			}
		})
	}
	t.Run("latency both ways", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.Latency, Latency: 100 * time.Millisecond},
			fault.Toxic{Kind: fault.Latency, Stream: fault.Upstream, Latency: 150 * time.Millisecond})
		if got, took, err := timed(dial(t, p.address), "hello"); got != "hello" || took < 250*time.Millisecond {
			t.Fatalf("%q after %v: %v; want it after 250 ms", got, took, err)
		}
	})
	t.Run("reset_peer", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.ResetPeer})
		if got, _, err := timed(dial(t, p.address), "hello"); got != "" || !errors.Is(err, syscall.ECONNRESET) {
			t.Fatalf("%q, %v; want a reset", got, err)
		}
	})
	t.Run("limit_data", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.LimitData, Bytes: 200})
		got, _, err := timed(dial(t, p.address), strings.Repeat("x", 500))
		if len(got) != 200 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("%d bytes, %v; want 200 and an early end", len(got), err)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.Timeout, Timeout: 250 * time.Millisecond})
		got, took, err := timed(dial(t, p.address), "hello")
		if got != "" || !errors.Is(err, io.EOF) || took < 200*time.Millisecond {
			t.Fatalf("%q, %v after %v; want an end without data after 250 ms", got, err, took)
		}
	})
	t.Run("timeout 0 hangs until cleared", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.Timeout})
		c := dial(t, p.address)
		_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
		var timeout net.Error
		if got, _, err := timed(c, "hello"); got != "" || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Fatalf("%q, %v; want nothing", got, err)
		}
		if err := New(Config{}).Clear(context.Background(), p.socket); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatalf("%v; want the hanging connection cut by the clear", err)
		}
	})
	t.Run("bandwidth", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.Bandwidth, Rate: 100_000})
		// 60 kB at 100 KB/s take 0.6 s.
		got, took, err := timed(dial(t, p.address), strings.Repeat("x", 60_000))
		if len(got) != 60_000 || took < 500*time.Millisecond || took > 2*time.Second {
			t.Fatalf("%d bytes after %v: %v; want 60000 after 0.6 s", len(got), took, err)
		}
	})
	t.Run("slicer keeps the bytes", func(t *testing.T) {
		set(t, p, fault.Toxic{Kind: fault.Slicer, AverageSize: 64, SizeVariation: 63, Delay: 100 * time.Microsecond})
		random := rand.NewChaCha8([32]byte{1})
		sent := make([]byte, 20_000)
		_, _ = random.Read(sent)
		got, took, err := timed(dial(t, p.address), string(sent))
		// At most 127 bytes a slice: 157 slices of at least 100 us each.
		if err != nil || !bytes.Equal([]byte(got), sent) || took < 15*time.Millisecond {
			t.Fatalf("%d bytes after %v: %v; want the 20000 that were sent, after 15 ms", len(got), took, err)
		}
	})
	t.Run("slow_close", func(t *testing.T) {
		const delay = 300 * time.Millisecond
		heard := make(chan time.Time, 1)
		speaker := startProxy(t, upstream(t, func(c net.Conn) { // says something, and ends when it is told to
			_, _ = c.Write([]byte("bye"))
			if b := make([]byte, 1); errors.Is(second(c.Read(b)), io.EOF) {
				heard <- time.Now()
			}
		}))
		set(t, speaker, fault.Toxic{Kind: fault.SlowClose, Stream: fault.Upstream, Delay: delay})
		wantToxics(t, speaker, fault.Toxic{Kind: fault.SlowClose, Stream: fault.Upstream, Toxicity: 100, Delay: delay})
		c := dial(t, speaker.address)
		if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		closed := time.Now()
		c.Close()
		if took := (<-heard).Sub(closed); took < delay || took > delay+time.Second {
			t.Errorf("the server heard of the end after %v, want %v", took, delay)
		}
		set(t, speaker, fault.Toxic{Kind: fault.SlowClose, Delay: delay})
		c = dial(t, speaker.address)
		if _, err := io.ReadFull(c, make([]byte, 3)); err != nil {
			t.Fatal(err)
		}
		closed = time.Now()
		if _, err := c.Write([]byte("x")); err != nil { // the server ends
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(closed) < delay {
			t.Errorf("%v after %v, want the end after %v", err, time.Since(closed), delay)
		}
	})
	t.Run("down", func(t *testing.T) {
		open := dial(t, p.address)
		set(t, p, fault.Toxic{Kind: fault.Down})
		if c, err := net.Dial("tcp", p.address); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("connect: %v, %v; want refused", c, err)
		}
		if _, err := roundTrip(open, "x"); err == nil {
			t.Fatal("an open connection survived down")
		}
		if err := New(Config{}).Clear(context.Background(), p.socket); err != nil {
			t.Fatal(err)
		}
		if got, err := roundTrip(dial(t, p.address), "x"); got != "x" {
			t.Fatalf("after the clear: %q, %v", got, err)
		}
	})
}

func second(_ int, err error) error { return err }

// The unit of toxicity is the connection: all calls on one are touched or none,
// and of 100 connections about half are.
func TestToxicityIsDrawnPerConnection(t *testing.T) {
	p := startProxy(t, upstream(t, echo))
	const delay = 150 * time.Millisecond
	set(t, p, fault.Toxic{Kind: fault.Latency, Latency: delay, Toxicity: 50})
	touched, kept := 0, dial(t, p.address)
	for range 10 {
		start := time.Now()
		if _, err := roundTrip(kept, "x"); err != nil {
			t.Fatal(err)
		}
		if time.Since(start) >= delay {
			touched++
		}
	}
	// With a draw for each call, this would pass once in 500 runs.
	if touched != 0 && touched != 10 {
		t.Errorf("%d of 10 calls on one connection were delayed, want all or none", touched)
	}

	set(t, p, fault.Toxic{Kind: fault.ResetPeer, Toxicity: 50})
	touched = 0
	for range 100 {
		c := dial(t, p.address)
		if _, err := roundTrip(c, "x"); err != nil {
			touched++
		}
		c.Close()
	}
	// 50 +- 4 standard deviations of a binomial(100, 0.5).
	if touched < 30 || touched > 70 {
		t.Errorf("%d of 100 connections were reset, want 30 to 70", touched)
	}
}
