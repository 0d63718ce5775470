package report

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/version"
	"netemd/probe"
)

// Limits of an Exporter.
const (
	// maxQueued is what waits for the collector, in bytes of samples: some 20,000 calls.
	maxQueued = 16 << 20
	// maxPosted are the calls of one request, and maxBody the bytes of their samples, but for
	// those of one part that came at once.
	maxPosted = 500
	maxBody   = 1 << 20
	// exportTries are how often a request is made that the collector may take later, first
	// after exportPause, which doubles.
	exportTries = 3
	exportPause = 500 * time.Millisecond
	// maxAnswer is what is read of the collector's answer.
	maxAnswer = 64 << 10
)

// Collector says where spans go, and how.
type Collector struct {
	// URL takes the traces: http://127.0.0.1:4318/v1/traces.
	URL string
	// Headers of each request beside the protocol's own.
	Headers map[string]string
	// Timeout of one request; default 10 s (OpenTelemetry's).
	Timeout time.Duration
	// Gzip packs the requests.
	Gzip bool
}

// Exported is what became of what an Exporter was given.
type Exported struct {
	// Calls were sent, Unsent were not; a call and its attempts are one trace. Faults and
	// UnsentFaults are the same of the faults' spans.
	Calls, Unsent, Faults, UnsentFaults int
	// Err is the last reason.
	Err error
}

// Exporter sends the spans of calls and faults to a collector by OTLP/HTTP, as JSON, beside
// the run: who adds never waits, and what finds no room is counted and not sent. It is safe for
// concurrent use.
type Exporter struct {
	to     Collector
	client *http.Client
	wake   chan struct{}
	done   chan struct{}
	cancel context.CancelFunc

	mu      sync.Mutex
	parts   []part
	queued  int
	closing bool
	windows windows
	sent    Exported
}

// part is something to send: lines of samples, or spans.
type part struct {
	tracer *tracer
	lines  []byte
	offset time.Duration
	calls  int
	spans  []span
}

// Export begins.
func Export(to Collector) *Exporter {
	if to.Timeout == 0 {
		to.Timeout = 10 * time.Second
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Exporter{
		to: to, wake: make(chan struct{}, 1), done: make(chan struct{}), cancel: cancel,
		client: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: 30 * time.Second},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the headers are for nobody else
		},
	}
	go e.work(ctx)
	return e
}

// Of makes a function that adds samples of a request, as lines of JSON; offset makes Unix time of
// their clock. The lines are not changed afterwards.
func (e *Exporter) Of(r probe.Request) func(lines []byte, offset time.Duration) {
	t := newTracer(r.WithDefaults())
	return func(lines []byte, offset time.Duration) {
		e.add(part{tracer: t, lines: lines, offset: offset, calls: bytes.Count(lines, []byte("\n"))})
	}
}

// AddEvent adds an event; a fault is sent when it has ended, or at the end.
func (e *Exporter) AddEvent(event experiment.Event) {
	e.mu.Lock()
	s := e.windows.add(event)
	e.mu.Unlock()
	if s != nil {
		e.add(part{spans: []span{*s}})
	}
}

func (e *Exporter) add(p part) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closing || e.queued+len(p.lines) > maxQueued {
		e.sent.Unsent += p.calls
		e.sent.UnsentFaults += len(p.spans)
		if e.sent.Err == nil {
			e.sent.Err = errors.New("the collector is slower than the calls")
		}
		return
	}
	e.parts, e.queued = append(e.parts, p), e.queued+len(p.lines)
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// Close sends what is left, for at most limit, and says what became of all.
func (e *Exporter) Close(limit time.Duration, now time.Time) Exported {
	e.mu.Lock()
	if rest := e.windows.rest(now); len(rest) > 0 {
		e.parts = append(e.parts, part{spans: rest})
	}
	e.closing = true
	e.mu.Unlock()
	select {
	case e.wake <- struct{}{}:
	default:
	}
	late := time.AfterFunc(limit, e.cancel)
	<-e.done
	late.Stop()
	e.cancel()
	e.client.CloseIdleConnections()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, p := range e.parts { // what the limit cut off
		e.sent.Unsent += p.calls
		e.sent.UnsentFaults += len(p.spans)
	}
	e.parts = nil
	return e.sent
}

// work sends until it is closed and nothing is left, or ctx ends.
func (e *Exporter) work(ctx context.Context) {
	defer close(e.done)
	tries := exportTries
	for {
		batch, closing := e.take()
		if len(batch) == 0 {
			if closing || ctx.Err() != nil {
				return
			}
			select {
			case <-e.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		rejected, err := e.post(ctx, batch, tries)
		tries = exportTries
		if err != nil {
			tries = 1 // until one is taken again
		}
		e.count(batch, rejected, err)
		if ctx.Err() != nil {
			return
		}
	}
}

// take gives the parts of the next request.
func (e *Exporter) take() (batch []part, closing bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n, calls, size := 0, 0, 0
	for n < len(e.parts) && (n == 0 || calls+e.parts[n].calls <= maxPosted && size+len(e.parts[n].lines) <= maxBody) {
		calls += e.parts[n].calls
		size += len(e.parts[n].lines)
		n++
	}
	e.queued -= size
	batch, e.parts = e.parts[:n:n], e.parts[n:]
	return batch, e.closing
}

// count keeps account of a request. rejected are spans that the collector did not take.
func (e *Exporter) count(batch []part, rejected int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	calls, faults := 0, 0
	for _, p := range batch {
		calls += p.calls
		faults += len(p.spans)
	}
	if err != nil {
		e.sent.Err = err
	}
	if err != nil && rejected == 0 {
		e.sent.Unsent += calls
		e.sent.UnsentFaults += faults
		return
	}
	rejected = min(rejected, calls)
	e.sent.Calls += calls - rejected
	e.sent.Unsent += rejected
	e.sent.Faults += faults
}

// document makes the request's body.
func document(batch []part) ([]byte, error) {
	var all tracesData
	for _, p := range batch {
		spans, r := p.spans, resource{[]attribute{text("service.name", "netemd-faults")}}
		for line := range bytes.Lines(p.lines) {
			var s probe.Sample
			if err := json.Unmarshal(line, &s); err != nil {
				return nil, fmt.Errorf("sample: %w", err)
			}
			spans = p.tracer.append(spans, &s, p.offset)
		}
		if p.tracer != nil {
			r = resourceOf(p.tracer.request, nil)
		}
		all.ResourceSpans = append(all.ResourceSpans, tracesOf(r, spans).ResourceSpans...)
	}
	var b bytes.Buffer
	err := encodeLine(&b, all)
	return b.Bytes(), err
}

// post makes a request, again while the collector may take it later. rejected are the spans
// of a request that it took in part, with what it said as the error.
func (e *Exporter) post(ctx context.Context, batch []part, tries int) (rejected int, err error) {
	body, err := document(batch)
	if err != nil {
		return 0, err
	}
	if e.to.Gzip {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(body); err != nil {
			return 0, err
		}
		if err := z.Close(); err != nil {
			return 0, err
		}
		body = packed.Bytes()
	}
	pause := exportPause
	for try := 1; ; try++ {
		var again time.Duration
		rejected, again, err = e.try(ctx, body)
		if err == nil || again < 0 || try >= tries {
			return rejected, err
		}
		select {
		case <-time.After(max(pause, again)):
		case <-ctx.Done():
			return 0, err
		}
		pause *= 2
	}
}

// try makes one request. again is below 0 for what would fail again, and else the pause that
// the collector asks for, at most 5 s.
func (e *Exporter) try(ctx context.Context, body []byte) (rejected int, again time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.to.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.to.URL, bytes.NewReader(body))
	if err != nil {
		return 0, -1, err
	}
	req.Header.Set("User-Agent", "netemctl/"+version.String())
	for name, value := range e.to.Headers {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", "application/json")
	if e.to.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := e.client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close() // what was read decides
	switch {
	case resp.StatusCode/100 == 2:
		return partial(answer)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode >= http.StatusBadGateway && resp.StatusCode <= http.StatusGatewayTimeout:
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			again = min(time.Duration(n)*time.Second, 5*time.Second)
		}
	default: // those that OTLP's specification names as retryable are above
		again = -1
	}
	return 0, again, errors.Join(fmt.Errorf("%s %s", resp.Proto, resp.Status), err)
}

// partial reads an ExportTraceServiceResponse, of which an empty one says that all was taken.
func partial(answer []byte) (rejected int, again time.Duration, err error) {
	var m struct {
		PartialSuccess struct {
			Rejected json.RawMessage `json:"rejectedSpans"`
			Message  string          `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	if json.Unmarshal(answer, &m) != nil { // it may be in another form: the status says that it was taken
		return 0, -1, nil
	}
	n, _ := strconv.Atoi(string(bytes.Trim(m.PartialSuccess.Rejected, `"`))) // without one: none
	if n <= 0 {
		return 0, -1, nil
	}
	return n, -1, fmt.Errorf("the collector did not take %d spans: %s", n, m.PartialSuccess.Message)
}
