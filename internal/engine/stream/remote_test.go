package stream

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	toxiclient "github.com/Shopify/toxiproxy/v2/client"
	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
)

func soon() time.Time { return time.Now().Add(time.Minute) }

// state is everything of a Toxiproxy that a client sees.
func (f *foreign) state(tb testing.TB) map[string]toxiclient.Proxy {
	tb.Helper()
	all, err := f.client.Proxies()
	if err != nil {
		tb.Fatal(err)
	}
	flat := map[string]toxiclient.Proxy{}
	for name, p := range all {
		flat[name] = toxiclient.Proxy{Name: p.Name, Listen: p.Listen, Upstream: p.Upstream, Enabled: p.Enabled, ActiveToxics: p.ActiveToxics}
	}
	return flat
}

func sameState(tb testing.TB, what string, want, got map[string]toxiclient.Proxy) {
	tb.Helper()
	ignore := cmp.FilterPath(func(p cmp.Path) bool {
		return strings.Contains(p.String(), "client") || strings.Contains(p.String(), "created")
	}, cmp.Ignore())
	if d := cmp.Diff(want, got, ignore, cmp.AllowUnexported(toxiclient.Proxy{})); d != "" {
		tb.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestRemoteLeavesOthersAlone(t *testing.T) {
	f := startForeign(t)
	at := upstream(t, echo)
	theirs := f.proxy(t, "redis", at)
	f.proxy(t, "other", at)
	if _, err := theirs.AddToxic("mine", "bandwidth", "downstream", 0.5, toxiclient.Attributes{"rate": 1000}); err != nil {
		t.Fatal(err)
	}
	before := f.state(t)
	open := dial(t, theirs.Listen)
	r, p := &Remote{Tag: "netemd-test"}, target.Toxiproxy{API: f.api, Name: "redis"}
	read := func(want ...fault.Toxic) {
		t.Helper()
		got, err := r.Read(t.Context(), p)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatalf("toxics (-want +got): %s\n%v", d, err)
		}
	}
	slow := fault.Toxic{Kind: fault.Latency, Stream: fault.Upstream, Latency: 100 * time.Millisecond, Jitter: 5 * time.Millisecond, Toxicity: 100}
	slicer := fault.Toxic{Kind: fault.Slicer, AverageSize: 64, Delay: 7 * time.Microsecond, Toxicity: 33.3333}.Normalize()
	limit := fault.Toxic{Kind: fault.LimitData, Bytes: 1 << 20, Toxicity: 100}.Normalize()
	for _, toxics := range [][]fault.Toxic{
		{slow}, {slow, slicer}, {slicer}, {limit, slicer}, {slicer, limit}, {{Kind: fault.Down}, slicer}, {slow, limit},
	} {
		if err := r.Set(t.Context(), p, toxics, soon()); err != nil {
			t.Fatal(err)
		}
		read(fault.NormalizeToxics(toxics)...)
		now := f.state(t)
		sameState(t, "the other proxy", map[string]toxiclient.Proxy{"x": before["other"]}, map[string]toxiclient.Proxy{"x": now["other"]})
		if !slices.ContainsFunc(now["redis"].ActiveToxics, func(x toxiclient.Toxic) bool { return x.Name == "mine" && x.Toxicity == 0.5 }) {
			t.Errorf("their toxic is gone: %+v", now["redis"].ActiveToxics)
		}
	}
	if err := r.Clear(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	read()
	sameState(t, "after all", before, f.state(t))
	// A Down cut the connection; one through which nothing but latency came is whole.
	open.Close()
	open = dial(t, theirs.Listen)
	for range 2 {
		if err := r.Set(t.Context(), p, []fault.Toxic{slow}, soon()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got, err := roundTrip(open, "x"); got != "x" || time.Since(start) < 90*time.Millisecond {
			t.Fatalf("%q after %v: %v; want the open connection delayed", got, time.Since(start), err)
		}
		if err := r.Clear(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := roundTrip(open, "x"); got != "x" {
		t.Fatal(err)
	}
}

func TestRemoteOwnProxy(t *testing.T) {
	f := startForeign(t)
	at := upstream(t, echo)
	r := &Remote{Tag: "netemd-test"}
	p := target.Toxiproxy{API: f.api, Listen: freeAddress(t), Upstream: at}
	before := f.state(t)
	down := fault.Toxic{Kind: fault.Down}
	for _, toxics := range [][]fault.Toxic{{latency}, {{Kind: fault.ResetPeer}}, {down, latency}, {latency}} {
		if err := r.Set(t.Context(), p, toxics, soon()); err != nil {
			t.Fatal(err)
		}
		got, err := r.Read(t.Context(), p)
		if d := cmp.Diff(fault.NormalizeToxics(toxics), got); d != "" || err != nil {
			t.Fatalf("toxics (-want +got): %s\n%v", d, err)
		}
	}
	start := time.Now()
	c := dial(t, p.Listen)
	if got, err := roundTrip(c, "x"); got != "x" || time.Since(start) < latency.Latency {
		t.Fatalf("%q after %v: %v", got, time.Since(start), err)
	}
	// The same again cuts nothing.
	if err := r.Set(t.Context(), p, []fault.Toxic{latency}, soon()); err != nil {
		t.Fatal(err)
	}
	if got, err := roundTrip(c, "x"); got != "x" {
		t.Fatal(err)
	}
	if err := r.Clear(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	sameState(t, "after the clear", before, f.state(t))
	if _, err := r.Read(t.Context(), p); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of a proxy that is gone: %v", err)
	}
	// Where its port is taken, nothing stays behind.
	taken, err := net.Listen("tcp", p.Listen)
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := r.Set(t.Context(), p, []fault.Toxic{latency}, soon()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("%v, want Toxiproxy's words", err)
	}
	sameState(t, "after the refusal", before, f.state(t))
}

// What somebody else does to our toxics is seen; what he does to his own is not ours.
func TestRemoteDrift(t *testing.T) {
	f := startForeign(t)
	theirs := f.proxy(t, "redis", upstream(t, echo))
	r, p := &Remote{Tag: "netemd-test"}, target.Toxiproxy{API: f.api, Name: "redis"}
	want := []fault.Toxic{latency.Normalize()}
	for name, act := range map[string]func() error{
		"nothing": func() error { return nil },
		"his own": func() error { _, err := theirs.AddToxic("x", "noop", "upstream", 1, nil); return err },
		"removed": func() error { return theirs.RemoveToxic(r.Mark(p) + "-latency_downstream") },
		"changed": func() error {
			_, err := theirs.UpdateToxic(r.Mark(p)+"-latency_downstream", -1, toxiclient.Attributes{"latency": 1})
			return err
		},
		"disabled": theirs.Disable,
		"reset":    f.client.ResetState,
		"deleted":  theirs.Delete,
	} {
		t.Run(name, func(t *testing.T) {
			if all := f.state(t); all["redis"].Name == "" {
				theirs = f.proxy(t, "redis", theirs.Upstream)
			}
			if err := theirs.Enable(); err != nil {
				t.Fatal(err)
			}
			if err := r.Set(t.Context(), p, want, soon()); err != nil {
				t.Fatal(err)
			}
			if err := act(); err != nil {
				t.Fatal(err)
			}
			got, err := r.Read(t.Context(), p)
			switch name {
			case "nothing", "his own":
				if d := cmp.Diff(want, got); d != "" || err != nil {
					t.Errorf("%v %s", err, d)
				}
			case "deleted":
				if !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%v, want not exist", err)
				}
			default:
				if err != nil || slices.Equal(got, want) {
					t.Errorf("%v, %v; want a drift", got, err)
				}
			}
			if name == "deleted" || name == "disabled" {
				if err := r.Clear(t.Context(), p); err != nil {
					t.Error(err)
				}
				return
			}
			if err := r.Set(t.Context(), p, want, soon()); err != nil { // as a repair does
				t.Error(err)
			}
			if err := r.Clear(t.Context(), p); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRemoteRefuses(t *testing.T) {
	f := startForeign(t)
	theirs := f.proxy(t, "redis", upstream(t, echo))
	if err := theirs.Disable(); err != nil {
		t.Fatal(err)
	}
	secret := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect/proxies" {
			http.Redirect(w, r, "http://"+f.api+"/proxies", http.StatusFound)
		}
		http.Error(w, `{"error": "the secret"}`, http.StatusTeapot)
	}))
	defer secret.Close()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"key": "the secret"}`)) }))
	defer other.Close()
	host := func(s *httptest.Server) string { return strings.TrimPrefix(s.URL, "http://") }
	r := &Remote{Tag: "netemd-test"}
	before := f.state(t)
	for name, tt := range map[string]struct {
		p    target.Toxiproxy
		want string
		is   error
	}{
		"disabled":         {target.Toxiproxy{API: f.api, Name: "redis"}, "is disabled, by somebody else", fault.ErrConflict},
		"no such proxy":    {target.Toxiproxy{API: f.api, Name: "rediss"}, "it has redis", fs.ErrNotExist},
		"nobody there":     {target.Toxiproxy{API: freeAddress(t), Name: "redis"}, "connection refused", fs.ErrNotExist},
		"no Toxiproxy":     {target.Toxiproxy{API: host(secret), Name: "redis"}, "is no Toxiproxy: GET /proxies/redis answers 418", nil},
		"no Toxiproxy too": {target.Toxiproxy{API: host(other), Name: "redis"}, "is no Toxiproxy", nil},
		"not loopback":     {target.Toxiproxy{API: "192.0.2.1:8474", Name: "redis"}, "no loopback address", nil},
	} {
		err := r.Set(t.Context(), tt.p, []fault.Toxic{latency}, soon())
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "secret") || tt.is != nil && !errors.Is(err, tt.is) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
	sameState(t, "after the refusals", before, f.state(t))
}

// After the agent's death everything of it, and nothing else, goes by the tag.
func TestRemoteSweep(t *testing.T) {
	f := startForeign(t)
	at := upstream(t, echo)
	theirs := f.proxy(t, "redis", at)
	f.proxy(t, "pg", at)
	f.proxy(t, "netemd-other-1", at)
	if _, err := theirs.AddToxic("netemd-other-1-latency_downstream", "latency", "downstream", 1, toxiclient.Attributes{"latency": 1}); err != nil {
		t.Fatal(err)
	}
	before := f.state(t)
	dead := &Remote{Tag: "netemd-test"}
	for p, toxics := range map[target.Toxiproxy][]fault.Toxic{
		{API: f.api, Name: "redis"}:                        {latency, {Kind: fault.Slicer, Stream: fault.Upstream, AverageSize: 9}},
		{API: f.api, Name: "pg"}:                           {{Kind: fault.Down}, latency},
		{API: f.api, Listen: freeAddress(t), Upstream: at}: {latency},
	} {
		if err := dead.Set(t.Context(), p, toxics, soon()); err != nil {
			t.Fatal(err)
		}
	}
	done, err := (&Remote{Tag: "netemd-test"}).Sweep(t.Context(), target.Toxiproxy{API: f.api}, []string{"pg"})
	if err != nil || len(done) != 5 {
		t.Errorf("%q, %v; want five things", done, err)
	}
	sameState(t, "after the sweep", before, f.state(t))
	if done, err := dead.Sweep(t.Context(), target.Toxiproxy{API: freeAddress(t)}, nil); err != nil || len(done) > 0 {
		t.Errorf("a Toxiproxy that is gone: %q, %v", done, err)
	}
}

// Taking a toxic out of a connection whose client does not read hangs the Toxiproxy.
func TestRemoteStuck(t *testing.T) {
	t.Parallel()
	const limit = 500 * time.Millisecond
	for _, tt := range []struct {
		name string
		own  bool
		kill bool // the client
	}{{"their proxy", false, false}, {"their proxy, killed client", false, true}, {"a proxy of its own", true, false}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f := startForeign(t)
			var load flood
			at := upstream(t, load.serve)
			r, p := &Remote{Tag: "netemd-test", Limit: limit}, target.Toxiproxy{API: f.api, Name: "redis"}
			listen := ""
			if tt.own {
				p = target.Toxiproxy{API: f.api, Listen: freeAddress(t), Upstream: at}
				listen = p.Listen
			} else {
				listen = f.proxy(t, "redis", at).Listen
			}
			if err := r.Set(t.Context(), p, []fault.Toxic{latency}, soon()); err != nil {
				t.Fatal(err)
			}
			c := dial(t, listen).(*net.TCPConn)
			_ = c.SetReadBuffer(4096)
			load.full(t)
			if tt.kill {
				_ = c.SetLinger(0)
				c.Close()
			}
			start := time.Now()
			err := r.Clear(t.Context(), p)
			took := time.Since(start)
			t.Logf("%v after %v", err, took)
			if took > 10*limit {
				t.Errorf("the clear took %v", took)
			}
			stuck, ok := errors.AsType[*StuckError](err)
			switch {
			case tt.own && err != nil:
				t.Errorf("%v; deleting the proxy cuts its connections, so nothing hangs", err)
			case err == nil:
			case !ok || stuck.How == "" || !errors.Is(err, ErrStuck):
				t.Fatalf("%v; want stuck, and what was done", err)
			case !stuck.Recovered: // nothing passes it: the old fault is not taken for none
				if c, err := net.Dial("tcp", listen); err == nil {
					c.Close()
					t.Error("the proxy still takes connections")
				}
			}
			// Its owner starts it again, and all is well.
			_ = f.cmd.Process.Kill()
			_ = f.cmd.Wait()
			if err := r.Clear(t.Context(), p); err != nil {
				t.Errorf("clear of one that is gone: %v", err)
			}
		})
	}
}

// With a proxy of its own at somebody else's Toxiproxy: no call that begins after Set is clean, although
// clients connect all the time while the proxy is made.
func TestRemoteNoCallEscapes(t *testing.T) {
	f := startForeign(t)
	r := &Remote{Tag: "netemd-test"}
	p := target.Toxiproxy{API: f.api, Listen: freeAddress(t), Upstream: upstream(t, echo)}
	var clean, delayed atomic.Int64
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", p.Listen)
				if err != nil {
					continue // refused while there is no proxy
				}
				_ = c.SetDeadline(time.Now().Add(5 * time.Second))
				start := time.Now()
				if _, err := roundTrip(c, "x"); err == nil {
					if time.Since(start) < latency.Latency {
						clean.Add(1)
					} else {
						delayed.Add(1)
					}
				}
				c.Close()
			}
		})
	}
	for range 10 {
		if err := r.Set(context.Background(), p, []fault.Toxic{latency}, soon()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
		if err := r.Clear(context.Background(), p); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	clients.Wait()
	t.Logf("%d delayed", delayed.Load())
	if clean.Load() > 0 || delayed.Load() == 0 {
		t.Errorf("%d calls were clean, %d delayed; want none and some", clean.Load(), delayed.Load())
	}
}
