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
	"time"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
)

const (
	// clientTime bounds what one call of a client may take to be read; answers have twice that.
	clientTime = 15 * time.Second
	// hangs is how long a call may take before the proxy that it is about is made anew: far
	// more than any takes that does not hang, and less than clients wait (Shopify's: 30 s).
	hangs = 3 * time.Second
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
}

func newFront(p *proxy) http.Handler {
	f := &front{p: p, native: p.server.Routes()}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /", f.native.ServeHTTP)
	mux.HandleFunc("POST /reset", f.reset)
	mux.HandleFunc("POST /populate", f.populate)
	mux.HandleFunc("POST /proxies", f.pass)
	for _, method := range []string{"POST", "PATCH"} {
		mux.HandleFunc(method+" /proxies/{proxy}", f.update)
		mux.HandleFunc(method+" /proxies/{proxy}/toxics/{toxic}", f.toxic)
	}
	mux.HandleFunc("DELETE /proxies/{proxy}", f.remove)
	mux.HandleFunc("POST /proxies/{proxy}/toxics", f.add)
	mux.HandleFunc("DELETE /proxies/{proxy}/toxics/{toxic}", f.toxic)
	mux.HandleFunc("/", f.native.ServeHTTP) // Toxiproxy's own words for what there is not
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.UserAgent(), "Mozilla/") { // as Toxiproxy: no web page changes anything here
			http.Error(w, "User agent not allowed", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// refuse answers in the form of Toxiproxy's own refusals.
func refuse(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"error": fmt.Sprintf(format, args...), "status": status})
}

// enter reads the body and lets one call in at a time, beside the orders of the agent. It is
// false when the body could not be read, which is answered then.
func (f *front) enter(w http.ResponseWriter, r *http.Request) (body []byte, leave func(), ok bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		refuse(w, http.StatusBadRequest, "bad request body: %v", err)
		return nil, nil, false
	}
	f.p.mu.Lock()
	return body, f.p.mu.Unlock, true
}

// own reports whether a call is about the lab's proxy.
func (f *front) own(r *http.Request) bool { return r.PathValue("proxy") == f.p.name }

func (f *front) pass(w http.ResponseWriter, r *http.Request) {
	body, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	f.run(w, r, body)
}

// run has Toxiproxy answer the call. When that hangs, the proxy that it is about is made anew,
// without its connections, and the call is made again on that. The caller has entered.
func (f *front) run(w http.ResponseWriter, r *http.Request, body []byte) {
	name := r.PathValue("proxy")
	before, err := f.snapshot(name)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "proxy control stuck: %v", err)
		return
	}
	for range 2 {
		done := make(chan *recorder, 1)
		go func() {
			answer := &recorder{header: http.Header{}, status: http.StatusOK}
			again := r.Clone(r.Context())
			again.Body = io.NopCloser(bytes.NewReader(body))
			f.native.ServeHTTP(answer, again)
			done <- answer
		}()
		select {
		case answer := <-done:
			answer.copyTo(w)
			return
		case <-time.After(hangs):
		}
		if name == "" || f.rebuild(before) != nil {
			break
		}
	}
	refuse(w, http.StatusServiceUnavailable, "proxy control stuck: %s %s did not end within %v", r.Method, r.URL.Path, hangs)
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
	case <-time.After(hangs):
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
	case <-time.After(hangs):
		p.log.Error().Msg("proxy control stuck: the proxy starts over")
		return p.startOver()
	}
}

// update changes a proxy itself.
func (f *front) update(w http.ResponseWriter, r *http.Request) {
	body, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	if f.own(r) {
		wish := struct {
			Listen, Upstream string
			Enabled          *bool
		}{Listen: f.p.listen, Upstream: f.p.upstream}
		if err := json.Unmarshal(body, &wish); err == nil {
			switch {
			case wish.Listen != f.p.listen || wish.Upstream != f.p.upstream:
				refuse(w, http.StatusConflict, "proxy %s belongs to the lab, which says that it listens on %s and forwards to %s", f.p.name, f.p.listen, f.p.upstream)
				return
			case f.p.faulty && wish.Enabled != nil && *wish.Enabled == f.p.down:
				refuse(w, http.StatusConflict, "proxy %s has a fault of netemd ('netemctl list' shows it): it is enabled and disabled when that has ended", f.p.name)
				return
			}
		}
	}
	f.run(w, r, body)
}

// remove deletes a proxy.
func (f *front) remove(w http.ResponseWriter, r *http.Request) {
	body, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	if f.own(r) {
		refuse(w, http.StatusConflict, "proxy %s belongs to the lab: it goes with it", f.p.name)
		return
	}
	f.run(w, r, body)
}

// add adds a toxic.
func (f *front) add(w http.ResponseWriter, r *http.Request) {
	body, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	var named struct{ Name string }
	if err := json.Unmarshal(body, &named); err == nil && f.own(r) && strings.HasPrefix(named.Name, mark+"-") {
		refuse(w, http.StatusConflict, "toxic %s: names that begin with %s- are those of faults of netemd", named.Name, mark)
		return
	}
	f.run(w, r, body)
}

// toxic changes or removes a toxic.
func (f *front) toxic(w http.ResponseWriter, r *http.Request) {
	body, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	if name := r.PathValue("toxic"); f.own(r) && strings.HasPrefix(name, mark+"-") {
		refuse(w, http.StatusConflict, "toxic %s is a fault of netemd: 'netemctl list' shows it, 'netemctl clear' ends it", name)
		return
	}
	f.run(w, r, body)
}

// populate makes proxies, unless one of them would take the place of the lab's.
func (f *front) populate(w http.ResponseWriter, r *http.Request) {
	body, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	var wishes []struct{ Name, Listen, Upstream string }
	if err := json.Unmarshal(body, &wishes); err == nil {
		for _, wish := range wishes {
			if wish.Name == f.p.name && (wish.Listen != f.p.listen || wish.Upstream != f.p.upstream) {
				refuse(w, http.StatusConflict, "proxy %s belongs to the lab, which says that it listens on %s and forwards to %s", f.p.name, f.p.listen, f.p.upstream)
				return
			}
		}
	}
	f.run(w, r, body)
}

// reset enables every proxy and takes all toxics away. While a fault is in force it is refused as a
// whole: a client that was told "reset" must not go on through a fault.
func (f *front) reset(w http.ResponseWriter, r *http.Request) {
	_, leave, ok := f.enter(w, r)
	if !ok {
		return
	}
	defer leave()
	if f.p.faulty {
		refuse(w, http.StatusConflict, "proxy %s has a fault of netemd: 'netemctl list' shows it, 'netemctl clear' ends it", f.p.name)
		return
	}
	for name, p := range f.p.server.Collection.Proxies() {
		before, err := f.snapshot(name)
		if err == nil {
			err = f.resetOne(r, p, before)
		}
		if err != nil {
			refuse(w, http.StatusInternalServerError, "reset of proxy %s: %v", name, err)
			return
		}
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
	case <-time.After(hangs):
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

func (a *recorder) Header() http.Header         { return a.header }
func (a *recorder) WriteHeader(status int)      { a.status = status }
func (a *recorder) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *recorder) copyTo(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes())
}
