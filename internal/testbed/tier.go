package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"netemd/internal/testbed/settings"
	"netemd/probe/policy"
)

// Tier is an HTTP server that works a while at each request and calls its upstreams for it,
// under client policies of its own: see docs/servers.md. It is safe for concurrent use.
type Tier struct {
	counters
	now atomic.Pointer[tierState]
}

// tierState is a tier as its settings made it; what came before others goes on with it.
type tierState struct {
	settings.Tier
	text      []byte
	workers   chan struct{}
	upstreams []*upstream
	// waiting are the requests that wait for a worker.
	waiting *atomic.Int64
}

// NewTier returns one without settings, which answers 200 at once.
func NewTier() *Tier {
	t := &Tier{}
	t.now.Store(&tierState{})
	for _, name := range []string{
		"hits", "ok", "errors", "refused", "degraded", "calls", "attempts", "retries", "rejected", "ejected",
		"completed_for_nobody", "wasted_ms", "late_ms", "work_ms", "held_ms",
	} {
		t.add(name, 0)
	}
	t.level("in_flight", 0)
	return t
}

// Settings implements control.Controlled.
func (t *Tier) Settings() []byte { return t.now.Load().text }

// Set implements control.Controlled. Upstreams are addresses.
func (t *Tier) Set(text []byte) error {
	s, err := settings.Parse(text)
	if err != nil {
		return err
	}
	made := &tierState{Tier: s, text: text, waiting: new(atomic.Int64)}
	if s.Workers > 0 {
		made.workers = make(chan struct{}, s.Workers)
	}
	var shared chan struct{}
	if s.Pool > 0 {
		shared = make(chan struct{}, s.Pool)
	}
	for _, e := range s.Upstreams {
		u, err := t.upstream(e.Name, e.Value, s, shared)
		if err != nil {
			return fmt.Errorf("upstreams.%s: %w", e.Name, err)
		}
		made.upstreams = append(made.upstreams, u)
	}
	t.now.Store(made)
	return nil
}

// Serve serves at l until ctx ends; it closes l.
func (t *Tier) Serve(ctx context.Context, l net.Listener) error {
	return serveHTTP(ctx, l, TierChild, t)
}

// ServeHTTP implements http.Handler.
func (t *Tier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/health" {
		_, _ = io.WriteString(w, "ok\n")
		return
	}
	s := t.now.Load()
	t.add("hits", 1)
	t.level("in_flight", 1)
	defer t.level("in_flight", -1)
	_, _ = io.Copy(io.Discard, r.Body) // only then does the server see that the client goes
	began := time.Now()
	ctx := context.WithoutCancel(r.Context())
	until, told := deadlineOf(r.Header, began)
	if s.ObeyDeadline {
		if !s.IgnoreLeaving {
			ctx = r.Context()
		}
		if told {
			var cancel context.CancelFunc
			ctx, cancel = context.WithDeadline(ctx, until)
			defer cancel()
		}
	}
	var gone atomic.Int64 // ns after the beginning at which the client went; 0: it is there
	stop := context.AfterFunc(r.Context(), func() { gone.Store(int64(time.Since(began))) })
	defer stop()
	a := t.answer(ctx, s, r)
	t.add("work_ms", a.worked.Milliseconds())
	if at := time.Duration(gone.Load()); at > 0 {
		t.add("held_ms", (time.Since(began) - at).Milliseconds())
		t.add("late_ms", min(a.worked, max(0, a.workEnded.Sub(began)-at)).Milliseconds())
		if a.status != 0 {
			t.add("completed_for_nobody", 1)
			t.add("wasted_ms", a.worked.Milliseconds())
		}
	}
	if a.status == 0 {
		a.status = http.StatusGatewayTimeout
	}
	if a.status < http.StatusBadRequest {
		t.add("ok", 1)
	} else {
		t.add("errors", 1)
	}
	if len(a.degraded) > 0 {
		t.add("degraded", 1)
		w.Header().Set(policy.HeaderDegraded, strings.Join(a.degraded, ", "))
	}
	w.WriteHeader(a.status)
	_, _ = fmt.Fprintf(w, "%d\n", a.status) // a client that has gone is nobody to tell
}

// answered is what became of a request.
type answered struct {
	// status is 0 where it was given up with its deadline.
	status    int
	worked    time.Duration
	workEnded time.Time
	// degraded are the upstreams in whose place a fallback answered, as NAME=ANSWER.
	degraded []string
}

func (t *Tier) answer(ctx context.Context, s *tierState, r *http.Request) (a answered) {
	if s.workers != nil {
		free, full := s.wait(ctx)
		switch {
		case full:
			t.add("refused", 1)
			return answered{status: http.StatusServiceUnavailable}
		case !free:
			return a
		}
		defer func() { <-s.workers }()
	}
	if ctx.Err() != nil {
		return a
	}
	began := time.Now()
	late := pause(ctx, s.Work)
	a.workEnded = time.Now()
	a.worked = a.workEnded.Sub(began)
	if late != nil {
		return a
	}
	a.status = http.StatusOK
	if s.Status != 0 {
		a.status = s.Status
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, u := range s.upstreams {
		if !strings.HasPrefix(r.URL.Path, u.Route) {
			continue
		}
		all.Go(func() {
			degraded, err := u.call(ctx, r)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				a.status = http.StatusBadGateway
			case degraded != "":
				a.degraded = append(a.degraded, u.name+"="+degraded)
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		a.status = 0
	}
	return a
}

// wait waits for a worker; full says that too many do already.
func (s *tierState) wait(ctx context.Context) (free, full bool) {
	select {
	case s.workers <- struct{}{}:
		return true, false
	default:
	}
	if n := s.waiting.Add(1); s.Queue > 0 && n > int64(s.Queue) {
		s.waiting.Add(-1)
		return false, true
	}
	defer s.waiting.Add(-1)
	select {
	case s.workers <- struct{}{}:
		return true, false
	case <-ctx.Done():
		return false, false
	}
}

var errDeadline = errors.New("not a time")

// deadlineOf is until when the caller waits, by the header that policies send.
func deadlineOf(h http.Header, now time.Time) (time.Time, bool) {
	left, err := parseTimeout(h.Get(policy.HeaderTimeout))
	return now.Add(left), err == nil
}

// parseTimeout reads a time as policy.GRPCTimeout writes it.
func parseTimeout(text string) (time.Duration, error) {
	if len(text) < 2 || len(text) > 9 {
		return 0, errDeadline
	}
	unit, ok := map[byte]time.Duration{'n': 1, 'u': time.Microsecond, 'm': time.Millisecond, 'S': time.Second, 'M': time.Minute, 'H': time.Hour}[text[len(text)-1]]
	n, err := strconv.ParseUint(text[:len(text)-1], 10, 32)
	if !ok || err != nil {
		return 0, errDeadline
	}
	const most = 1000 * time.Hour // beyond it the product would not fit
	return min(time.Duration(n), most/unit) * unit, nil
}

// address is a replica's.
func address(at string) (netip.AddrPort, error) {
	a, err := netip.ParseAddrPort(at)
	if err != nil {
		return a, fmt.Errorf("at: %q: want ADDRESS:PORT", at)
	}
	return a, nil
}
