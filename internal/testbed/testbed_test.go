package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"netemd/internal/child"
	"netemd/probe"
	grpcprobe "netemd/probe/grpc"
	"netemd/probe/grpc/echo"
)

func TestMain(m *testing.M) {
	child.Run()
	goleak.VerifyTestMain(m)
}

// serve runs a server until the test ends and returns its address.
func serve(t *testing.T, f func(context.Context, net.Listener) error) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestHTTP(t *testing.T) {
	at := serve(t, HTTPEcho)
	for _, version := range []string{"HTTP/1.1", "HTTP/2.0"} {
		transport := &http.Transport{Protocols: new(http.Protocols)}
		transport.Protocols.SetHTTP1(version == "HTTP/1.1")
		transport.Protocols.SetUnencryptedHTTP2(version == "HTTP/2.0")
		client := http.Client{Transport: transport}
		ask := func(method, path, body string) (int, string) {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://"+at+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Asked", "yes")
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = resp.Body.Close() }()
			text, err := io.ReadAll(resp.Body)
			if err != nil {
				t.Fatal(err)
			}
			return resp.StatusCode, string(text)
		}
		var got Echoed
		code, text := ask("PUT", "/a/b?c=d", "hello")
		if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 {
			t.Fatalf("%d %q %v", code, text, err)
		}
		if got.Method != "PUT" || got.Path != "/a/b" || got.Query != "c=d" || got.Proto != version || got.Host != at || got.Body != "hello" ||
			got.BodyBytes != 5 || got.Headers.Get("X-Asked") != "yes" || !strings.HasPrefix(got.Peer, "127.0.0.1:") {
			t.Errorf("%s: %+v", version, got)
		}
		began := time.Now()
		if code, _ := ask("GET", "/delay/50ms", ""); code != 200 || time.Since(began) < 50*time.Millisecond {
			t.Errorf("%s: delay: %d after %v", version, code, time.Since(began))
		}
		for path, want := range map[string]struct {
			code, length int
		}{
			"/health": {200, 3}, "/status/503": {503, 0}, "/bytes/100000": {200, 100000},
			"/status/99": {400, -1}, "/status/x": {400, -1}, "/delay/5": {400, -1}, "/delay/2m": {400, -1}, "/drip/3/10ms": {200, 3}, "/drip/x/1s": {400, -1}, "/drip/1/5": {400, -1}, "/bytes/-1": {400, -1}, "/bytes/99999999999": {400, -1},
		} {
			if code, text := ask("GET", path, ""); code != want.code || want.length >= 0 && len(text) != want.length {
				t.Errorf("%s %s: %d with %d bytes, want %+v", version, path, code, len(text), want)
			}
		}
		transport.CloseIdleConnections()
	}
}

func TestGRPC(t *testing.T) {
	at := serve(t, GRPCEcho)
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	c := echo.NewEchoClient(conn)
	ctx := t.Context()

	m, err := c.Unary(ctx, &echo.Request{Text: "hello", Bytes: 7})
	if err != nil || m.GetText() != "hello" || len(m.GetPayload()) != 7 || !strings.HasPrefix(m.GetPeer(), "127.0.0.1:") {
		t.Errorf("unary: %v, %v", m, err)
	}
	if _, err := c.Unary(ctx, &echo.Request{Status: uint32(codes.Unavailable)}); status.Code(err) != codes.Unavailable {
		t.Errorf("status: %v", err)
	}
	if _, err := c.Unary(ctx, &echo.Request{Bytes: maxPayload + 1}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("too much: %v", err)
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if _, err := c.Unary(short, &echo.Request{DelayMs: 30_000}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("late: %v", err)
	}

	expand, err := c.Expand(ctx, &echo.Request{Text: "x", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint32(1); i <= 3; i++ {
		if m, err := expand.Recv(); err != nil || m.GetNumber() != i {
			t.Errorf("expand: %v, %v", m, err)
		}
	}
	if _, err := expand.Recv(); err != io.EOF { //nolint:errorlint // the stream's own end
		t.Errorf("expand's end: %v", err)
	}
	collect, err := c.Collect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "b"} {
		if err := collect.Send(&echo.Request{Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	if m, err := collect.CloseAndRecv(); err != nil || m.GetText() != "b" || m.GetNumber() != 2 {
		t.Errorf("collect: %v, %v", m, err)
	}
	exchange, err := c.Exchange(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"a", "b"} {
		if err := exchange.Send(&echo.Request{Text: text}); err != nil {
			t.Fatal(err)
		}
		if m, err := exchange.Recv(); err != nil || m.GetText() != text || m.GetNumber() != uint32(i+1) {
			t.Errorf("exchange: %v, %v", m, err)
		}
	}
	_ = exchange.CloseSend()

	state, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "netemd.testbed.v1.Echo"})
	if err != nil || state.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", state, err)
	}
	info, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(ctx)
	if err != nil {
		t.Fatal(err)
	}
	list := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := info.Send(list); err != nil {
		t.Fatal(err)
	}
	if m, err := info.Recv(); err != nil || !strings.Contains(m.String(), "netemd.testbed.v1.Echo") {
		t.Errorf("reflection: %v, %v", m, err)
	}
	_ = info.CloseSend()
}

func TestGRPCModes(t *testing.T) {
	at := netip.MustParseAddrPort(serve(t, GRPCEcho))
	for _, p := range []*grpcprobe.Probe{
		{Bytes: 64}, {Bytes: 4 << 20, New: true}, {Mode: grpcprobe.ServerStream, Bytes: 100_000}, {Mode: grpcprobe.ClientStream, New: true, Messages: 3},
		{Mode: grpcprobe.Bidi, Bytes: 10, Messages: 100},
	} {
		p.Address = at
		for i := range 2 {
			if s := p.Call(t.Context(), i); s.Class != probe.OK {
				t.Errorf("%s: %+v", p.Mode, s)
			}
		}
		_ = p.Close()
	}
}

// TestDigest: what an answer says that its body is.
func TestDigest(t *testing.T) {
	for path, said := range map[string]bool{"/bytes/0": true, "/bytes/1000": true, fmt.Sprint("/bytes/", maxDigest+1): false} {
		w := httptest.NewRecorder()
		httpRoutes().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		sum := sha256.Sum256(w.Body.Bytes())
		want := ""
		if said {
			want = "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
		}
		if got := w.Header().Get("Content-Digest"); got != want {
			t.Errorf("%s: Content-Digest %q, want %q", path, got, want)
		}
	}
}
