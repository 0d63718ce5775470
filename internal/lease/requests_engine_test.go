package lease

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// fakeHTTPProxy is one http-proxy for all targets that have it.
type fakeHTTPProxy struct {
	rules []fault.Fault // with counters
	sets  int
	fail  error
	gone  error
}

func (p *fakeHTTPProxy) SetRequests(_ context.Context, _ target.Target, faults []fault.Fault) error {
	if p.fail != nil || p.gone != nil {
		return errors.Join(p.fail, p.gone)
	}
	p.sets++
	next := []fault.Fault{}
	for _, f := range faults {
		n := fault.Fault{ID: f.ID, State: fault.Active, Expires: f.Expires, Spec: fault.Spec{Request: f.Spec.Request}}
		if i := slices.IndexFunc(p.rules, func(o fault.Fault) bool { return o.ID == f.ID }); i >= 0 {
			n.Counters = p.rules[i].Counters
		}
		next = append(next, n)
	}
	p.rules = next
	return nil
}

func (p *fakeHTTPProxy) ReadRequests(context.Context, target.Target) ([]fault.Fault, error) {
	return slices.Clone(p.rules), p.gone
}

// count has n requests meet the fault.
func (p *fakeHTTPProxy) count(id string, n uint64) {
	for i := range p.rules {
		if p.rules[i].ID == id {
			p.rules[i].Counters.Seen += n
			p.rules[i].Counters.Errors += n / 2
		}
	}
}

func newRequestManager(t *testing.T) (*Manager, *fakeHTTPProxy) {
	t.Helper()
	p := &fakeHTTPProxy{}
	m := New(Config{
		Requests: p, Log: slog.New(slog.DiscardHandler),
		Resolve: func(_ context.Context, s fault.Spec) (target.Target, error) {
			switch s.Target {
			case "web", "shop": // two names of one server
				return target.Target{Name: s.Target, Lab: "echo", To: to, From: from, HTTPProxy: netip.MustParseAddrPort("10.80.0.2:8080")}, nil
			case "bare":
				return target.Target{Name: "bare", Lab: "echo", To: to, From: from}, nil
			}
			return target.Target{}, target.ErrUnknown
		},
	})
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m, p
}

func answering(at string, r fault.Request) fault.Spec {
	return fault.Spec{Target: at, Owner: "uid 0", Request: &r}
}

var fifth = fault.Request{Error: 20, Status: 503}

func TestRequestsLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newRequestManager(t)
		f, err := m.Apply(t.Context(), answering("web", fifth))
		if err != nil || f.Engine != fault.Application || f.Placement[0] != "http-proxy at 10.80.0.2:8080" || f.Spec.Request.Seed == 0 {
			t.Fatalf("%+v, %v", f, err)
		}
		if len(p.rules) != 1 || p.rules[0].Spec.Request.Seed != f.Spec.Request.Seed || !p.rules[0].Expires.Equal(f.Expires) {
			t.Errorf("the proxy has %+v", p.rules)
		}
		p.count(f.ID, 10)
		if got, err := m.Get(t.Context(), f.ID); err != nil || got.State != fault.Active || got.Counters != (fault.Counters{Seen: 10, Errors: 5}) {
			t.Errorf("%+v, %v", got, err)
		}
		renewed, err := m.Renew(t.Context(), f.ID, "uid 0", time.Hour)
		if err != nil || !p.rules[0].Expires.Equal(renewed.Expires) || p.rules[0].Counters.Seen != 10 {
			t.Errorf("renewed: %+v, %v; the proxy has %+v", renewed, err, p.rules)
		}
		if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{}); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "clear it and apply another") {
			t.Errorf("change: %v", err)
		}
		p.count(f.ID, 2)
		ended, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0")
		if err != nil || ended[0].Counters.Seen != 12 || len(p.rules) != 0 {
			t.Errorf("cleared: %+v, %v; the proxy has %+v", ended, err, p.rules)
		}
	})
}

// TestRequestsExpire: the proxy ends it by itself, and what it counted is told.
func TestRequestsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newRequestManager(t)
		s := answering("web", fifth)
		s.TTL = time.Minute
		f, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		p.count(f.ID, 4)
		time.Sleep(time.Minute + time.Second)
		synctest.Wait()
		if all := m.List(t.Context()); len(all) != 0 || len(p.rules) != 0 {
			t.Errorf("held: %+v, in the proxy: %+v", all, p.rules)
		}
	})
}

// TestRequestsCombine: one owner's stand one behind the other unless both do the same to
// requests that both could select; whatever the target's name is, the proxy is one.
func TestRequestsCombine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newRequestManager(t)
		first, err := m.Apply(t.Context(), answering("web", fifth))
		if err != nil {
			t.Fatal(err)
		}
		for name, s := range map[string]fault.Spec{
			"the same":       answering("web", fault.Request{Error: 1, Status: 500}),
			"another name":   answering("shop", fault.Request{Error: 1, Status: 500}),
			"a part of them": answering("web", fault.Request{Error: 1, Status: 500, Path: "/pay/*"}),
			"another owner":  {Target: "shop", Owner: "uid 7", Request: &fault.Request{Delay: 1, Latency: time.Second}},
		} {
			if _, err := m.Apply(t.Context(), s); !errors.Is(err, fault.ErrConflict) {
				t.Errorf("%s: %v", name, err)
			}
		}
		second, err := m.Apply(t.Context(), answering("shop", fault.Request{Delay: 50, Latency: time.Second}))
		if err != nil {
			t.Fatal(err)
		}
		if len(p.rules) != 2 || p.rules[0].ID != first.ID || p.rules[1].ID != second.ID {
			t.Errorf("the proxy has %+v", p.rules)
		}
		p.count(first.ID, 6)
		p.count(second.ID, 3)
		if a, _ := m.Get(t.Context(), first.ID); a.Counters.Seen != 6 || a.State != fault.Active {
			t.Errorf("%+v", a)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: first.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
		if len(p.rules) != 1 || p.rules[0].Counters.Seen != 3 {
			t.Errorf("after the first's end the proxy has %+v", p.rules)
		}
		if _, err := m.Apply(t.Context(), answering("web", fault.Request{Delay: 1, Latency: time.Second, Method: "GET"})); !errors.Is(err, fault.ErrConflict) {
			t.Errorf("another delay: %v", err)
		}
		for _, path := range []string{"/a/*", "/b/*"} {
			if _, err := m.Apply(t.Context(), answering("web", fault.Request{Error: 1, Status: 500, Path: path})); err != nil {
				t.Errorf("requests apart: %v", err)
			}
		}
	})
}

func TestRequestsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, p := newRequestManager(t)
		f, err := m.Apply(t.Context(), answering("web", fifth))
		if err != nil {
			t.Fatal(err)
		}
		look := func(what string, want fault.State, reason string) {
			t.Helper()
			if got, err := m.Get(t.Context(), f.ID); err != nil || got.State != want || !strings.Contains(got.Reason, reason) {
				t.Errorf("%s: %s (%q), %v", what, got.State, got.Reason, err)
			}
		}
		kept := p.rules
		p.rules = nil
		look("started anew", fault.Drifted, "nothing of it is in force")
		p.rules = slices.Clone(kept)
		look("back", fault.Active, "")
		p.rules = append(slices.Clone(kept), fault.Fault{ID: "other"})
		look("another's", fault.Drifted, "other faults")
		p.rules = slices.Clone(kept)
		look("back", fault.Active, "")
		p.rules[0].State = fault.Expired
		look("over", fault.Drifted, "ended by itself")
		p.rules = kept
		look("back", fault.Active, "")
		p.gone = fs.ErrNotExist
		look("gone", fault.Lost, "the http-proxy of target web is gone")
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil {
			t.Errorf("clear of one whose proxy is gone: %v", err)
		}
		p.gone = nil
	})
}

func TestRequestsRefused(t *testing.T) {
	m, p := newRequestManager(t)
	if _, err := m.Apply(t.Context(), answering("bare", fifth)); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "no http-proxy") {
		t.Errorf("no proxy: %v", err)
	}
	p.fail = errors.New("does not answer")
	if _, err := m.Apply(t.Context(), answering("web", fifth)); !errors.Is(err, p.fail) {
		t.Errorf("a proxy that fails: %v", err)
	}
	p.fail = nil
	if err := m.Retire(t.Context(), []string{"web"}, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	for _, f := range m.List(t.Context()) { // what could not be undone at first
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil {
			t.Error(err)
		}
	}
}
