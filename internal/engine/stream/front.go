package stream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
)

const (
	// clientTime bounds what one call of a client may take to be read; answers have twice that.
	clientTime = 15 * time.Second
	// hangs is how long a call may take before the proxy that it is about is made anew: far
	// more than any takes that does not hang, and less than clients wait (Shopify's: 30 s).
	hangs = 3 * time.Second
	// patience is for how many of those a call waits for its turn.
	patience = 4
	// maxBody of a call.
	maxBody = 1 << 20
)

// front is Toxiproxy's API for its clients. What it adds: faults and the toxics of clients do
// not destroy one another (what would is refused with 409), and no call hangs.
//
// On the proxy of the lab, clients may add, change and remove toxics of their own, which stay
// when a fault comes, changes and goes, and disable and enable it while no fault is in force.
// Proxies that they made are theirs.
type front struct {
	p      *proxy
	native http.Handler
	hangs  time.Duration
}

func newFront(p *proxy) http.Handler {
	f := &front{p: p, native: p.server.Routes(), hangs: hangs}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /reset", f.locked(f.reset))
	mux.HandleFunc("POST /populate", f.locked(f.populate))
	mux.HandleFunc("POST /proxies", f.locked(f.run))
	for _, method := range []string{"POST", "PATCH"} {
		mux.HandleFunc(method+" /proxies/{proxy}", f.locked(f.update))
		mux.HandleFunc(method+" /proxies/{proxy}/toxics/{toxic}", f.locked(f.toxic))
	}
	mux.HandleFunc("DELETE /proxies/{proxy}", f.locked(f.remove))
	mux.HandleFunc("POST /proxies/{proxy}/toxics", f.locked(f.add))
	mux.HandleFunc("DELETE /proxies/{proxy}/toxics/{toxic}", f.locked(f.toxic))
	mux.HandleFunc("/", f.look) // also for Toxiproxy's own words for what there is not
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.UserAgent(), "Mozilla/") { // as Toxiproxy: no web page changes anything here
			http.Error(w, "User agent not allowed", http.StatusForbidden)
			return
		}
		// Toxiproxy's routes go by the path in which %2F is a slash, and so must these.
		r.URL.RawPath = ""
		mux.ServeHTTP(w, r)
	})
}

// refuse answers in the form of Toxiproxy's own refusals.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": fmt.Sprintf(format, args...), "status": status})
}

// locked has act answer while it is the only one that changes something, beside the orders of
// the agent too. The client's part, what it sends and reads, is outside of that, so that one
// who is slow at it holds up nobody.
func (f *front) locked(act func(w http.ResponseWriter, r *http.Request, body []byte)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil && len(body) > 0 {
			err = readJSON(body, &json.RawMessage{})
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, "bad request body: %v", err)
			return
		}
		answer := newRecorder()
		if f.p.turn.takeWithin(patience * f.hangs) {
			func() {
				defer f.p.turn.give()
				act(answer, r, body)
			}()
		} else {
			refuse(answer, http.StatusServiceUnavailable, "proxy control stuck: %s %s had no turn within %v", r.Method, r.URL.Path, patience*f.hangs)
		}
		answer.copyTo(w)
	}
}

// readJSON reads one JSON value as Toxiproxy does, with its decoder, which leaves what stands
// behind the value. Here that is refused: nothing may mean one thing there and another here.
func readJSON(body []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something behind the JSON value")
	}
	return nil
}

// understood decodes the body of a call about something of netemd's, and is false, with an
// answer, for one that Toxiproxy would not take either.
func understood(w http.ResponseWriter, body []byte, v any) bool {
	if err := readJSON(body, v); err != nil {
		refuse(w, http.StatusBadRequest, "bad request body: %v", err)
		return false
	}
	return true
}

// own reports whether a call is about the lab's proxy.
func (f *front) own(r *http.Request) bool { return r.PathValue("proxy") == f.p.name }

// look answers what changes nothing. It waits for nobody's turn, but Toxiproxy may hang below
// it, until the call in progress has had its proxy made anew: so it is tried again.
func (f *front) look(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad request body: %v", err)
		return
	}
	for range 2 {
		if answer, ok := f.ask(r, body); ok {
			answer.copyTo(w)
			return
		}
	}
	refuse(w, http.StatusServiceUnavailable, "proxy control stuck: %s %s did not end within %v", r.Method, r.URL.Path, 2*f.hangs)
}

// ask has Toxiproxy answer the call; it is false when that takes too long.
func (f *front) ask(r *http.Request, body []byte) (*recorder, bool) {
	done := make(chan *recorder, 1)
	go func() {
		answer := newRecorder()
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		f.native.ServeHTTP(answer, again)
		done <- answer
	}()
	limit := time.NewTimer(f.hangs)
	defer limit.Stop()
	select {
	case answer := <-done:
		return answer, true
	case <-limit.C:
		return nil, false
	}
}

// run has Toxiproxy answer the call. When that hangs, the proxy that it is about is made anew,
// without its connections, and the call is made again on that.
func (f *front) run(w http.ResponseWriter, r *http.Request, body []byte) {
	name := r.PathValue("proxy")
	before, err := f.snapshot(name)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "proxy control stuck: %v", err)
		return
	}
	for range 2 {
		if answer, ok := f.ask(r, body); ok {
			answer.copyTo(w)
			return
		}
		if name == "" || f.rebuild(before) != nil {
			break
		}
	}
	refuse(w, http.StatusServiceUnavailable, "proxy control stuck: %s %s did not end within %v", r.Method, r.URL.Path, f.hangs)
}

// snapshot is what a proxy is, to make it anew.
type snapshot struct {
	proxy   *toxiproxy.Proxy
	toxics  []json.RawMessage
	enabled bool
}

// snapshot of a proxy that does not exist is empty. It does not hang.
func (f *front) snapshot(name string) (snapshot, error) {
	if name == "" {
		return snapshot{}, nil
	}
	p, err := f.p.server.Collection.Get(name)
	if err != nil {
		return snapshot{}, nil // Toxiproxy says so
	}
	type result struct {
		s   snapshot
		err error
	}
	done := make(chan result, 1)
	go func() {
		toxics, err := toxicsOf(p)
		p.Lock()
		defer p.Unlock()
		done <- result{snapshot{p, toxics, p.Enabled}, err}
	}()
	select {
	case r := <-done:
		return r.s, r.err
	case <-time.After(f.hangs):
		return snapshot{}, errors.New("the proxy does not answer")
	}
}

// rebuild puts a new proxy with the toxics of before in the place of one that hangs, whose
// connections it cuts. Where that hangs, too, the process starts over.
func (f *front) rebuild(before snapshot) error {
	p := f.p
	old := before.proxy
	if old == nil {
		return toxiproxy.ErrProxyNotFound
	}
	p.log.Error().Str("proxy", old.Name).Msg("proxy control stuck: the proxy is made anew, and its connections are cut")
	done := make(chan error, 1)
	go func() {
		// Removing it stops it, which ends its connections and takes none of the locks of its
		// toxics, unless a connection comes in at this moment.
		if err := p.server.Collection.Remove(old.Name); err != nil {
			done <- err
			return
		}
		next := toxiproxy.NewProxy(p.server, old.Name, old.Listen, old.Upstream)
		for _, t := range before.toxics {
			if _, err := next.Toxics.AddToxicJson(bytes.NewReader(t)); err != nil {
				done <- err
				return
			}
		}
		done <- p.server.Collection.Add(next, before.enabled)
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(f.hangs):
		p.log.Error().Msg("proxy control stuck: the proxy starts over")
		return p.startOver()
	}
}

// update changes a proxy itself.
func (f *front) update(w http.ResponseWriter, r *http.Request, body []byte) {
	if f.own(r) {
		wish := struct {
			Listen, Upstream string
			Enabled          *bool
		}{Listen: f.p.listen, Upstream: f.p.upstream}
		switch {
		case !understood(w, body, &wish):
			return
		case wish.Listen != f.p.listen || wish.Upstream != f.p.upstream:
			refuse(w, http.StatusConflict, "proxy %s belongs to the lab, which says that it listens on %s and forwards to %s", f.p.name, f.p.listen, f.p.upstream)
			return
		case f.p.faulty && wish.Enabled != nil && *wish.Enabled == f.p.down:
			refuse(w, http.StatusConflict, "proxy %s has a fault of netemd ('netemctl list' shows it): it is enabled and disabled when that has ended", f.p.name)
			return
		}
	}
	f.run(w, r, body)
}

// remove deletes a proxy.
func (f *front) remove(w http.ResponseWriter, r *http.Request, body []byte) {
	if f.own(r) {
		refuse(w, http.StatusConflict, "proxy %s belongs to the lab: it goes with it", f.p.name)
		return
	}
	f.run(w, r, body)
}

// add adds a toxic.
func (f *front) add(w http.ResponseWriter, r *http.Request, body []byte) {
	if f.own(r) {
		var named struct{ Name string }
		if !understood(w, body, &named) {
			return
		}
		if strings.HasPrefix(named.Name, mark+"-") {
			refuse(w, http.StatusConflict, "toxic %s: names that begin with %s- are those of faults of netemd", named.Name, mark)
			return
		}
	}
	if f.unsound(w, r, body) {
		return
	}
	f.run(w, r, body)
}

// toxic changes or removes a toxic.
func (f *front) toxic(w http.ResponseWriter, r *http.Request, body []byte) {
	if name := r.PathValue("toxic"); f.own(r) && strings.HasPrefix(name, mark+"-") {
		refuse(w, http.StatusConflict, "toxic %s is a fault of netemd: 'netemctl list' shows it, 'netemctl clear' ends it", name)
		return
	}
	if r.Method != http.MethodDelete && f.unsound(w, r, body) {
		return
	}
	f.run(w, r, body)
}

// populate makes proxies, unless one of them would take the place of the lab's.
func (f *front) populate(w http.ResponseWriter, r *http.Request, body []byte) {
	var wishes []struct{ Name, Listen, Upstream string }
	if !understood(w, body, &wishes) {
		return
	}
	for _, wish := range wishes {
		if wish.Name == f.p.name && (wish.Listen != f.p.listen || wish.Upstream != f.p.upstream) {
			refuse(w, http.StatusConflict, "proxy %s belongs to the lab, which says that it listens on %s and forwards to %s", f.p.name, f.p.listen, f.p.upstream)
			return
		}
	}
	f.run(w, r, body)
}

// reset enables every proxy and takes all toxics away. While a fault is in force it is refused as a
// whole: a client that was told "reset" must not go on through a fault.
func (f *front) reset(w http.ResponseWriter, r *http.Request, _ []byte) {
	if f.p.faulty {
		refuse(w, http.StatusConflict, "proxy %s has a fault of netemd: 'netemctl list' shows it, 'netemctl clear' ends it", f.p.name)
		return
	}
	var wait sync.WaitGroup // at the same time: one that hangs takes its time
	all := f.p.server.Collection.Proxies()
	errs := make(chan error, len(all))
	for name, p := range all {
		wait.Go(func() {
			before, err := f.snapshot(name)
			if err == nil {
				err = f.resetOne(r, p, before)
			}
			if err != nil {
				errs <- fmt.Errorf("reset of proxy %s: %w", name, err)
			}
		})
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		refuse(w, http.StatusInternalServerError, "%v", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (f *front) resetOne(r *http.Request, p *toxiproxy.Proxy, before snapshot) error {
	done := make(chan error, 1)
	go func() {
		err := p.Start()
		if errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
			err = nil
		}
		if err == nil {
			p.Toxics.ResetToxics(r.Context())
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(f.hangs):
		before.toxics, before.enabled = nil, true
		return f.rebuild(before)
	}
}

// recorder holds an answer until it is whole.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func newRecorder() *recorder { return &recorder{header: http.Header{}, status: http.StatusOK} }

func (a *recorder) Header() http.Header         { return a.header }
func (a *recorder) WriteHeader(status int)      { a.status = status }
func (a *recorder) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *recorder) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
