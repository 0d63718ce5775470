package application

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestPassesExactly compares what the server and the client see through the proxy with what they
// see without.
func TestPassesExactly(t *testing.T) {
	type seen struct {
		Method, URI, Host string
		Length            int64
		Header, Trailer   http.Header
		Body              [32]byte
	}
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			var last atomic.Pointer[seen]
			web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				last.Store(&seen{r.Method, r.RequestURI, r.Host, r.ContentLength, r.Header, r.Trailer, sha256.Sum256(body)})
				switch r.URL.Path {
				case "/empty":
					w.Header()["Content-Type"] = nil
					w.WriteHeader(http.StatusNoContent)
				case "/moved":
					http.Redirect(w, r, "/elsewhere", http.StatusFound)
				case "/trailers":
					w.Header().Set("Trailer", "X-Sum")
					_, _ = w.Write([]byte("text"))
					w.Header().Set("X-Sum", "4")
					w.Header().Set(http.TrailerPrefix+"X-More", "5")
				default:
					w.Header()["Date"] = nil
					w.Header().Add("Set-Cookie", "a=b")
					w.Header().Add("Set-Cookie", "c=d")
					w.Header().Set("X-Hop", "x")
					_, _ = w.Write(body)
				}
			})
			through, _ := startProxy(t, web)
			c := newClient(t, http2)
			big := make([]byte, 3<<20+17)
			random := rand.NewChaCha8([32]byte{1})
			_, _ = random.Read(big)
			for _, q := range []struct {
				method, path string
				body         []byte
				chunked      bool
			}{
				{"GET", "/a%2Fb/c%20d?x=1;y=2&%zz", nil, false},
				{"GET", "//double?", nil, false},
				{"HEAD", "/head", nil, false},
				{"DELETE", "/empty", nil, false},
				{"GET", "/moved", nil, false},
				{"GET", "/trailers", nil, false},
				{"PUT", "/big", big, false},
				{"POST", "/big", big, true},
				{"OPTIONS", "/", nil, false},
			} {
				ask := func(address string) (seen, *http.Response, [32]byte) {
					var body io.Reader
					if q.body != nil {
						body = bytes.NewReader(q.body)
					}
					if q.chunked {
						body = io.NopCloser(body)
					}
					r, err := http.NewRequestWithContext(t.Context(), q.method, "http://"+address+q.path, body)
					if err != nil {
						t.Fatal(err)
					}
					r.Host = "shop.example"
					r.Header = http.Header{
						"X-Forwarded-For": {"192.0.2.1"}, "Forwarded": {"for=192.0.2.1"}, "X-Two": {"1", "2"}, "User-Agent": {""}, "Te": {"trailers"},
						"X-Empty": {""}, "Cookie": {"a=b"},
					}
					if q.chunked {
						r.Trailer = http.Header{"X-Check": {"sum"}}
					}
					a, err := c.Do(r)
					if err != nil {
						t.Fatal(err)
					}
					defer func() { _ = a.Body.Close() }()
					text, err := io.ReadAll(a.Body)
					if err != nil {
						t.Fatal(err)
					}
					return *last.Load(), a, sha256.Sum256(text)
				}
				straightSeen, straight, straightBody := ask(web)
				proxySeen, proxied, proxyBody := ask(through)
				if diff := cmp.Diff(straightSeen, proxySeen); diff != "" {
					t.Errorf("%s %s: the server sees (-straight +through the proxy):\n%s", q.method, q.path, diff)
				}
				straight.Header.Del("Date")
				proxied.Header.Del("Date")
				type answer struct {
					Status          int
					Length          int64
					Header, Trailer http.Header
					Body            [32]byte
				}
				if diff := cmp.Diff(answer{straight.StatusCode, straight.ContentLength, straight.Header, straight.Trailer, straightBody},
					answer{proxied.StatusCode, proxied.ContentLength, proxied.Header, proxied.Trailer, proxyBody}); diff != "" {
					t.Errorf("%s %s: the client sees (-straight +through the proxy):\n%s", q.method, q.path, diff)
				}
			}
		})
	}
}

// TestHopFields sends fields of one hop, which end at the proxy.
func TestHopFields(t *testing.T) {
	web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%v|%v|%v", r.Header["X-Mine"], r.Header["Keep-Alive"], r.Header["Te"])
	})
	address, _ := startProxy(t, web)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: X-Mine, TE\r\nX-Mine: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\n\r\n")
	a, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	if text, _ := io.ReadAll(a.Body); string(text) != "[]|[]|[trailers]" {
		t.Errorf("the server saw %q", text)
	}
}

// TestAddsNoBuffering has server and client say things in turn: none of both would go on if
// a byte were kept back.
func TestAddsNoBuffering(t *testing.T) {
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
				send := http.NewResponseController(w)
				if r.ProtoMajor == 1 {
					_ = send.EnableFullDuplex()
				}
				_ = send.Flush() // the headers first
				b := make([]byte, 1)
				for {
					if _, err := r.Body.Read(b); err != nil {
						return
					}
					_, _ = w.Write(b)
					_ = send.Flush()
				}
			})
			address, _ := startProxy(t, web)
			body, feed := io.Pipe()
			q, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+address, body)
			if err != nil {
				t.Fatal(err)
			}
			a, err := newClient(t, http2).Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = a.Body.Close() }()
			for _, want := range []byte("byte by byte") {
				_, _ = feed.Write([]byte{want})
				var got [1]byte
				if _, err := io.ReadFull(a.Body, got[:]); err != nil || got[0] != want {
					t.Fatalf("got %q, %v, want %q", got, err, want)
				}
			}
			_ = feed.Close()
			if rest, err := io.ReadAll(a.Body); err != nil || len(rest) > 0 {
				t.Errorf("at the end: %q, %v", rest, err)
			}
		})
	}
}

// TestClientGoes cancels a request, and the server has to see that at once.
func TestClientGoes(t *testing.T) {
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			began, ended := make(chan struct{}), make(chan struct{})
			web := startWeb(t, func(_ http.ResponseWriter, r *http.Request) {
				close(began)
				<-r.Context().Done()
				close(ended)
			})
			address, _ := startProxy(t, web)
			ctx, cancel := context.WithCancel(t.Context())
			q, err := http.NewRequestWithContext(ctx, "GET", "http://"+address, nil)
			if err != nil {
				t.Fatal(err)
			}
			go func() { <-began; cancel() }()
			if a, err := newClient(t, http2).Do(q); err == nil {
				_ = a.Body.Close()
				t.Fatal("the request did not end")
			}
			select {
			case <-ended:
			case <-time.After(5 * time.Second):
				t.Error("the server works for a client that has gone")
			}
		})
	}
}

// TestConnections: a client's connection has one to the server, which ends with it.
func TestConnections(t *testing.T) {
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			web := startWeb(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.RemoteAddr) })
			address, _ := startProxy(t, web)
			peers := map[string]bool{}
			for range 3 {
				c := newClient(t, http2)
				for range 4 {
					_, peer := do(t, c, "GET", "http://"+address, nil)
					peers[peer] = true
				}
			}
			if len(peers) != 3 {
				t.Errorf("3 connections came as %d", len(peers))
			}
		})
	}
}

// TestUpstreamBreaks: nobody there is an answer, what broke off is broken off, and nothing is
// sent twice.
func TestUpstreamBreaks(t *testing.T) {
	for name, http2 := range versions {
		t.Run(name, func(t *testing.T) {
			none, _ := startProxy(t, "127.0.0.1:1")
			a, text := do(t, newClient(t, http2), "GET", "http://"+none, nil)
			if a.StatusCode != http.StatusBadGateway || !strings.Contains(text, "connection refused") {
				t.Errorf("nobody there: %s %q", a.Status, text)
			}
			var came atomic.Int32
			web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
				came.Add(1)
				if r.URL.Path == "/half" {
					w.Header().Set("Content-Length", "100")
					_, _ = io.WriteString(w, "half")
					_ = http.NewResponseController(w).Flush()
				}
				panic(http.ErrAbortHandler)
			})
			address, _ := startProxy(t, web)
			for _, path := range []string{"/", "/half"} {
				// By POST, since the client itself repeats a GET.
				q, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+address+path, strings.NewReader("x"))
				a, err := newClient(t, http2).Do(q)
				if err == nil {
					_, err = io.ReadAll(a.Body)
					_ = a.Body.Close()
				}
				if err == nil {
					t.Errorf("%s: no error", path)
				}
			}
			if n := came.Load(); n != 2 {
				t.Errorf("2 requests came %d times", n)
			}
		})
	}
}

// TestUpgrade passes another protocol by a 101.
func TestUpgrade(t *testing.T) {
	web := startWeb(t, func(w http.ResponseWriter, r *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+r.Header.Get("Upgrade")+"\r\n\r\n")
		line, _ := rw.ReadString('\n')
		_, _ = io.WriteString(c, "said "+line)
	})
	address, _ := startProxy(t, web)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: talk\r\n\r\n")
	read := bufio.NewReader(c)
	a, err := http.ReadResponse(read, nil)
	if err != nil || a.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", a, err)
	}
	_, _ = io.WriteString(c, "hello\n")
	if line, err := read.ReadString('\n'); line != "said hello\n" || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("got %q, %v", line, err)
	}
}
