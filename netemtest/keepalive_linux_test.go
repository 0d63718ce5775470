package netemtest_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"netemd/netemtest"
)

// An HTTP/2 client goes on with one connection: behind a partition that one is dead, and each
// call on it times out, until the kernel has sent its data again, which takes up to as long as
// the partition took. A client that asks by pings whether the connection lives (SendPingTimeout
// and PingTimeout here, ReadIdleTimeout in golang.org/x/net/http2) takes a new one.
// netemtest does nothing about it: this shows how it is seen.
func TestKeptAliveConnection(t *testing.T) {
	t.Parallel()
	hold := 3 * time.Second
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		hold = 10 * time.Second
	}
	const check = time.Second
	lab := netemtest.Lab(t, duo)
	var connections atomic.Int32
	var two http.Protocols
	two.SetUnencryptedHTTP2(true)
	l, err := lab.Node("server").Listen("tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Protocols: &two, ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	client := lab.Node("client")
	transport := &http.Transport{
		Protocols: &two, HTTP2: &http.HTTP2Config{SendPingTimeout: check, PingTimeout: check},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connections.Add(1)
			return client.DialContext(ctx, network, address)
		},
	}
	t.Cleanup(transport.CloseIdleConnections)
	call := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+lab.Addr("web"), nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := transport.RoundTrip(r)
		if err != nil {
			return err
		}
		return a.Body.Close()
	}
	for err := call(); err != nil; err = call() { // the machine may be slow
		t.Log("before the partition:", err)
	}
	partition := netemtest.Partition(t, "web")
	for end := time.Now().Add(hold); time.Now().Before(end); {
		if err := call(); err == nil {
			t.Fatal("an answer through a partition")
		}
	}
	partition.Clear()
	healed := time.Now()
	for err := call(); err != nil; err = call() {
		if time.Since(healed) > time.Minute {
			t.Fatalf("no answer a minute after the partition: %v", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Log(err)
		}
	}
	took := time.Since(healed)
	t.Logf("the first answer came %v after the partition of %v; %d connections", took, hold, connections.Load())
	// A bound for a machine that stands still at moments: on one that does not it is the time
	// of two pings and of a lost SYN.
	if most := hold + 10*check; took > most {
		t.Errorf("the first answer came %v after the partition, want %v at most", took, most)
	}
	if connections.Load() < 2 {
		t.Error("the client never gave the dead connection up")
	}
}
