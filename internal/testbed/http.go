package testbed

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// Echoed is what HTTPEcho answers with.
type Echoed struct {
	// Proto is "HTTP/1.1" or "HTTP/2.0", Peer the client's address.
	Method  string      `json:"method"`
	Path    string      `json:"path"`
	Query   string      `json:"query,omitempty"`
	Proto   string      `json:"proto"`
	Host    string      `json:"host"`
	Peer    string      `json:"peer"`
	Headers http.Header `json:"headers"`
	// Body is at most the first MiB of it, BodyBytes the length of all.
	Body      string `json:"body,omitempty"`
	BodyBytes int64  `json:"body_bytes"`
}

// HTTPEcho serves HTTP/1.1 and HTTP/2 without TLS (by prior knowledge) at l, until ctx
// ends; it closes l. Every path answers with an Echoed as JSON, but for
//
//	/status/N         answers with status N, 200 to 599
//	/delay/DURATION   answers so late ("250ms"), at most a minute
//	/bytes/N          answers with N bytes, at most 64 MiB; up to 1 MiB with a Content-Digest
//	/drip/N/DURATION  answers with N bytes, each so long after the one before, at most 1000
//	/health           answers "ok"
func HTTPEcho(ctx context.Context, l net.Listener) error {
	return serveHTTP(ctx, l, HTTPEchoChild, httpRoutes())
}

// serveHTTP serves h over HTTP/1.1 and HTTP/2 without TLS until ctx ends, and closes l.
func serveHTTP(ctx context.Context, l net.Listener, name string, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, Protocols: new(http.Protocols), ConnContext: numbered()}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("%s: %w", name, err)
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	if server.Shutdown(end) != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

type connectionKey struct{}

// numbered gives each connection its number, from 0.
func numbered() func(context.Context, net.Conn) context.Context {
	var made atomic.Int64
	return func(ctx context.Context, _ net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, int(made.Add(1)-1))
	}
}

// connectionOf is the number of the connection that a request came by.
func connectionOf(r *http.Request) int {
	n, _ := r.Context().Value(connectionKey{}).(int)
	return n
}

func httpRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", echoHTTP)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/status/{status}", func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.PathValue("status"))
		if err != nil || status < 200 || status > 599 {
			http.Error(w, "want /status/N, with N from 200 to 599", http.StatusBadRequest)
			return
		}
		w.WriteHeader(status)
	})
	mux.HandleFunc("/delay/{delay}", func(w http.ResponseWriter, r *http.Request) {
		delay, err := time.ParseDuration(r.PathValue("delay"))
		if err != nil || delay < 0 || delay > maxDelay {
			http.Error(w, "want /delay/DURATION, such as 250ms, at most 1m", http.StatusBadRequest)
			return
		}
		if pause(r.Context(), delay) == nil {
			echoHTTP(w, r)
		}
	})
	mux.HandleFunc("/bytes/{bytes}", func(w http.ResponseWriter, r *http.Request) {
		n, err := strconv.ParseInt(r.PathValue("bytes"), 10, 64)
		if err != nil || n < 0 || n > maxBytes {
			http.Error(w, fmt.Sprintf("want /bytes/N, with N up to %d", maxBytes), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		if n <= maxDigest {
			sum := sha256.New()
			_, _ = io.CopyN(sum, &digits{}, n)
			w.Header().Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(sum.Sum(nil))+":")
		}
		_, _ = io.CopyN(w, &digits{}, n) // a client that has gone is nobody to tell
	})
	mux.HandleFunc("/drip/{bytes}/{every}", drip)
	return mux
}

func drip(w http.ResponseWriter, r *http.Request) {
	n, err := strconv.Atoi(r.PathValue("bytes"))
	every, bad := time.ParseDuration(r.PathValue("every"))
	if err != nil || bad != nil || n < 0 || n > maxDrips || every < 0 || every > maxDelay {
		http.Error(w, fmt.Sprintf("want /drip/N/DURATION, with N up to %d, such as /drip/10/50ms", maxDrips), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Length", strconv.Itoa(n))
	send := http.NewResponseController(w)
	for range n {
		if pause(r.Context(), every) != nil {
			return
		}
		_, _ = w.Write([]byte{'0'})
		if send.Flush() != nil {
			return // a client that has gone is nobody to tell
		}
	}
}

func echoHTTP(w http.ResponseWriter, r *http.Request) {
	const most = 1 << 20
	body, err := io.ReadAll(io.LimitReader(r.Body, most))
	rest := int64(0)
	if err == nil {
		rest, err = io.Copy(io.Discard, r.Body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Echoed{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Proto: r.Proto, Host: r.Host, Peer: r.RemoteAddr, Headers: r.Header,
		Body: string(body), BodyBytes: int64(len(body)) + rest,
	})
}

// digits is an endless text that repeats itself after a prime number of bytes, so that one
// that was shifted or cut differs.
type digits struct{ at int }

func (d *digits) Read(b []byte) (int, error) {
	const prime = 251
	for i := range b {
		b[i] = byte('0' + d.at%prime%10)
		d.at++
	}
	return len(b), nil
}
