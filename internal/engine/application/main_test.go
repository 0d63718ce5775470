package application

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"netemd/internal/child"
	"netemd/internal/fault"
)

func TestMain(m *testing.M) {
	child.Run()
	goleak.VerifyTestMain(m)
}

// serveTCP runs serve with a listener of its own until the test ends.
func serveTCP(t testing.TB, serve func(context.Context, *net.TCPListener) error) (address string) {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// startProxy is the proxy in this process, in front of an upstream.
func startProxy(t testing.TB, upstream string) (address string, r *rules) {
	r = &rules{}
	r.hear()
	return serveTCP(t, func(ctx context.Context, l *net.TCPListener) error { return serve(ctx, l, upstream, r) }), r
}

// startWeb is an upstream of HTTP/1.1 and 2 with a handler.
func startWeb(t testing.TB, h http.HandlerFunc) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: h, Protocols: new(http.Protocols), ReadHeaderTimeout: time.Minute}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close(); <-done })
	return l.Addr().String()
}

// versions are the protocols of a client.
var versions = map[string]bool{"HTTP/1.1": false, "HTTP/2": true}

// newClient speaks one of them, and keeps connections.
func newClient(t testing.TB, http2 bool) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols), DisableCompression: true}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetUnencryptedHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: 20 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// in makes a rule that ends in a minute.
func in(id string, r fault.Request) Rule {
	return Rule{ID: id, Request: r, DeadlineUnixNS: time.Now().Add(time.Minute).UnixNano()}
}

// do sends a request and reads its answer.
func do(t testing.TB, c *http.Client, method, url string, body io.Reader) (*http.Response, string) {
	t.Helper()
	q, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	a, err := c.Do(q)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer func() { _ = a.Body.Close() }()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	return a, string(text)
}
