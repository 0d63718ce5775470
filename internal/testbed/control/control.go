// Package control is how a small server of a lab is looked at and set while it serves: HTTP
// over a unix socket in the service's folder, for its agent alone.
//
//	GET  /state     the counters and the settings, as State
//	PUT  /settings  replaces the settings, whole; a mistake is 400 with its text
//	POST /reset     sets the counters to 0
package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// Socket is the name of the socket in the service's folder.
const Socket = "control.sock"

// MaxSettings bounds the text of settings, in bytes.
const MaxSettings = 1 << 20

// limit bounds one exchange.
const limit = 5 * time.Second

// Controlled is a server that is looked at and set. It is safe for concurrent use.
type Controlled interface {
	// Counters are what it counted since its start or the last Reset.
	Counters() map[string]int64
	// Settings are those that are in force, as YAML; empty for a server that has none.
	Settings() []byte
	// Set replaces them, whole; on an error nothing is changed.
	Set(text []byte) error
	// Reset sets the counters to 0, but for those of what is under way.
	Reset()
}

// State is what a server tells of itself.
type State struct {
	Counters map[string]int64 `json:"counters"`
	Settings string           `json:"settings,omitempty"`
}

// Serve serves the control of c at l until ctx ends; it closes l.
func Serve(ctx context.Context, l net.Listener, c Controlled) error {
	s := &http.Server{Handler: routes(c), ReadHeaderTimeout: limit}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("control: %w", err)
	}
	return nil
}

func routes(c Controlled) http.Handler {
	mux := http.NewServeMux()
	tell := func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(State{c.Counters(), string(c.Settings())}) // nobody to tell of an agent that has gone
	}
	mux.HandleFunc("GET /state", func(w http.ResponseWriter, _ *http.Request) { tell(w) })
	mux.HandleFunc("POST /reset", func(w http.ResponseWriter, _ *http.Request) {
		c.Reset()
		tell(w)
	})
	mux.HandleFunc("PUT /settings", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxSettings))
		if err == nil {
			err = c.Set(text)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		tell(w)
	})
	return mux
}

// Client talks to the server whose socket is at Path.
type Client struct{ Path string }

// State asks for counters and settings. The error is fs.ErrNotExist where no server listens.
func (c Client) State(ctx context.Context) (State, error) {
	return c.ask(ctx, http.MethodGet, "/state", nil)
}

// Set replaces the settings.
func (c Client) Set(ctx context.Context, text []byte) (State, error) {
	return c.ask(ctx, http.MethodPut, "/settings", text)
}

// Reset sets the counters to 0.
func (c Client) Reset(ctx context.Context) (State, error) {
	return c.ask(ctx, http.MethodPost, "/reset", nil)
}

func (c Client) ask(ctx context.Context, method, path string, body []byte) (State, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("control: no answer for %v", limit))
	defer cancel()
	t := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", c.Path)
	}}
	req, err := http.NewRequestWithContext(ctx, method, "http://control"+path, bytes.NewReader(body))
	if err != nil {
		return State{}, err
	}
	resp, err := t.RoundTrip(req)
	if errors.Is(err, syscall.ECONNREFUSED) {
		err = fmt.Errorf("nobody listens: %w", fs.ErrNotExist)
	}
	if err != nil {
		return State{}, fmt.Errorf("control: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // what is missing of an error's text is no other error
		return State{}, &RefusedError{Text: strings.TrimSpace(string(text))}
	}
	var s State
	if err := json.NewDecoder(resp.Body).Decode(&s); err != nil {
		return State{}, fmt.Errorf("control: %w", err)
	}
	return s, nil
}

// RefusedError is what a server says of settings that it does not take.
type RefusedError struct{ Text string }

func (e *RefusedError) Error() string { return e.Text }
