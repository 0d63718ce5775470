package application

import (
	"context"
	"errors"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"netemd/internal/fault"
)

// maxStreams is how many streams a client may have open on one connection: the upstream's
// own limit is what it meets.
const maxStreams = math.MaxInt32

// proxy is the http.Handler that forwards.
type proxy struct {
	rules   *rules
	reverse *httputil.ReverseProxy
}

// newServer serves what comes to a listener of upstream u by the rules.
func newServer(u *upstream, r *rules) *http.Server {
	quiet := log.New(io.Discard, "", 0)
	p := &proxy{rules: r, reverse: &httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { rewrite(r, u.address) },
		Transport:      trips{},
		FlushInterval:  -1, // at once
		ErrorLog:       quiet,
		ModifyResponse: noteEmpty,
		ErrorHandler:   answerBroken,
	}}
	s := &http.Server{
		Handler: p, ErrorLog: quiet, Protocols: new(http.Protocols), MaxHeaderBytes: 1 << 20,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: maxStreams, MaxReceiveBufferPerStream: streamWindow},
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if c, ok := c.(*conn); ok {
				ctx = context.WithValue(ctx, linkKey{}, c.link)
			}
			return ctx
		},
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch m := p.rules.meet(r.Context(), r, goneOf(r)); {
	case m.gone:
		panic(http.ErrAbortHandler)
	case m.by == nil:
		if r.ProtoMajor == 1 {
			_ = http.NewResponseController(w).EnableFullDuplex() // as by HTTP/2: an answer may come before the end of the body
		}
		plain := &writer{ResponseWriter: w}
		p.reverse.ServeHTTP(plain, r.WithContext(context.WithValue(r.Context(), writerKey{}, plain)))
	case m.verdict == fault.Aborted:
		abort(w, r)
	default:
		answerFault(w, r, m.by)
	}
}

// goneOf looks for the client of a request whose body has not been read yet: by HTTP/1.1 the
// server does not look at the connection until then.
func goneOf(r *http.Request) func() bool {
	l := linkOf(r.Context())
	if l == nil || r.ProtoMajor != 1 || r.ContentLength == 0 {
		return nil
	}
	return func() bool { return hasGone(l.socket) }
}

// rewrite sends a request to the upstream as it came: what httputil takes away beside the fields
// of one hop is put back.
func rewrite(r *httputil.ProxyRequest, address string) {
	r.Out.URL.Scheme, r.Out.URL.Host = "http", address
	r.Out.Host = r.In.Host
	r.Out.Trailer = r.In.Trailer // the server fills it in at the body's end
	if r.In.ProtoMajor == 2 && r.Out.Body != nil {
		// httputil's body cannot be closed, which HTTP/2 does when the answer has ended before it:
		// the end of the answer would wait for the client's.
		r.Out.Body = r.In.Body
	}
	r.Out.URL.RawQuery, r.Out.URL.ForceQuery = r.In.URL.RawQuery, r.In.URL.ForceQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := r.In.Header[name]; ok {
			r.Out.Header[name] = v
		}
	}
}

// answerBroken says what is wrong with the upstream: nobody there is an answer of the proxy's
// own, and what broke off is broken off.
func answerBroken(w http.ResponseWriter, r *http.Request, err error) {
	if _, ok := errors.AsType[*dialError](err); !ok || r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	if isCall(r) {
		answerCall(w, r, 14, err.Error()) // UNAVAILABLE
		return
	}
	answerText(w, http.StatusBadGateway, "502 Bad Gateway: "+err.Error()+"\n")
}

type writerKey struct{}

// writer writes an answer as it came, without what the server would add.
type writer struct {
	http.ResponseWriter
	// empty says that the answer ends with its headers: to flush them would make it one with
	// an empty body, and to a gRPC client another one.
	empty bool
}

// noteEmpty is asked before an answer is written.
func noteEmpty(r *http.Response) error {
	if w, ok := r.Request.Context().Value(writerKey{}).(*writer); ok {
		w.empty = r.Body == http.NoBody || r.ContentLength == 0
	}
	return nil
}

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	if status >= http.StatusOK {
		for _, name := range []string{"Date", "Content-Type", "Content-Length"} {
			if _, ok := w.Header()[name]; !ok {
				w.Header()[name] = nil // none is added
			}
		}
	}
	w.ResponseWriter.WriteHeader(status)
}

// FlushError is for http.ResponseController.
func (w *writer) FlushError() error {
	if w.empty {
		return nil
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// Unwrap is for http.ResponseController.
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// serve forwards what comes to l to the upstream address by the rules, until ctx ends.
func serve(ctx context.Context, l *net.TCPListener, address string, r *rules) error {
	u := newUpstream(address)
	s := newServer(u, r)
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener{l, u}) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	const graceful = time.Second
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), graceful)
	defer cancel()
	if s.Shutdown(end) != nil {
		_ = s.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
