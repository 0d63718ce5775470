package stream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// ErrStuck is what errors.Is finds when a proxy's control did not answer in time.
var ErrStuck = errors.New("proxy control stuck")

// StuckError is a control call that was given up. The proxy may still carry the
// old fault, unless Recovered; How says more of one that is not ours.
type StuckError struct {
	// Socket is the proxy's API socket or address, Call the method and path.
	Socket, Call string
	// Limit is how long the call was waited for.
	Limit time.Duration
	// Recovered says that the proxy was restarted afterwards: it runs, without
	// toxics.
	Recovered bool
	// Recovery is what went wrong in the attempt to restart it; nil when there was
	// none.
	Recovery error
	// How says what was done to a proxy of somebody else's, which cannot be restarted;
	// empty: nothing.
	How string
}

// Error says the call, the limit and what became of the proxy.
func (e *StuckError) Error() string {
	s := fmt.Sprintf("proxy control stuck: %s on %s did not answer within %v", e.Call, e.Socket, e.Limit)
	switch {
	case e.How != "" && e.Recovery != nil:
		return s + "; " + e.How + ": " + e.Recovery.Error()
	case e.How != "":
		return s + "; " + e.How
	case e.Recovered:
		return s + "; the proxy was restarted without toxics"
	case e.Recovery != nil:
		return s + "; restarting the proxy: " + e.Recovery.Error()
	}
	return s
}

// Is reports that every StuckError is an ErrStuck.
func (e *StuckError) Is(target error) bool { return target == ErrStuck }

// Unwrap returns what went wrong in the recovery.
func (e *StuckError) Unwrap() error { return e.Recovery }

// maxAnswer bounds what an API may say, in bytes: some ten thousand proxies with toxics.
const maxAnswer = 16 << 20

// control speaks HTTP over one proxy's API socket. Toxiproxy's own client cannot:
// it takes no transport, and it does not end a call with its context.
type control struct {
	socket string // for people, where connect is set
	limit  time.Duration
	// connect opens a connection to the API; nil is the unix socket at socket.
	connect func(ctx context.Context) (net.Conn, error)
}

// call sends in as JSON, if it is not nil, and decodes the answer into out, if
// that is not nil. The error is a StuckError when the proxy accepts the call but
// does not answer within the limit, and wraps fs.ErrNotExist or ECONNREFUSED when
// no proxy is there.
func (c control) call(ctx context.Context, method, path string, in, out any) error {
	name := method + " " + path
	stuck := &StuckError{Socket: c.socket, Call: name, Limit: c.limit}
	limited, cancel := context.WithTimeoutCause(ctx, c.limit, stuck)
	defer cancel()
	err := c.do(limited, method, path, in, out)
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(limited), stuck):
		return stuck
	case limited.Err() != nil:
		return fmt.Errorf("proxy control: %s on %s: %w", name, c.socket, context.Cause(limited))
	}
	return fmt.Errorf("proxy control: %s on %s: %w", name, c.socket, err)
}

func (c control) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	// The host is a placeholder: the transport dials the socket whatever it says.
	request, err := http.NewRequestWithContext(ctx, method, "http://proxy"+path, body)
	if err != nil {
		return err
	}
	// One connection for each call: calls are rare, and none is left open.
	transport := &http.Transport{DisableKeepAlives: true, DialContext: c.dial}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return err
	case len(answer) > maxAnswer:
		return fmt.Errorf("the answer has more than %d MiB, which is the most", maxAnswer>>20)
	case response.StatusCode >= 300:
		return refusal(response.StatusCode, answer)
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer, out)
}

func (c control) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if c.connect != nil {
		return c.connect(ctx)
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
}

// statusError is an answer that refuses.
type statusError struct {
	status int
	words  string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("answer %d %s: %s", e.status, http.StatusText(e.status), e.words)
}

// answered reports whether err is an answer with that status.
func answered(err error, status int) bool {
	e, ok := errors.AsType[*statusError](err)
	return ok && e.status == status
}

// refusal keeps the words of the answer: Toxiproxy sends {"error": "..."}.
func refusal(status int, answer []byte) error {
	var said struct {
		Error string `json:"error"`
	}
	if json.Unmarshal(answer, &said) != nil || said.Error == "" {
		said.Error = strings.TrimSpace(string(answer))
	}
	return &statusError{status, said.Error}
}
