package testbed

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/testbed/control"
	"netemd/probe/policy"
)

// upstreamAt is a server that answers as f says, and its address.
func upstreamAt(t *testing.T, f http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func tierWith(t *testing.T, settings string) *Tier {
	t.Helper()
	tier := NewTier()
	if err := tier.Set([]byte(settings)); err != nil {
		t.Fatal(err)
	}
	return tier
}

func ask(ctx context.Context, tier *Tier, path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, path, strings.NewReader("x"))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	tier.ServeHTTP(w, r)
	return w
}

func (t *Tier) want(test *testing.T, want map[string]int64) {
	test.Helper()
	got := t.Counters()
	for name, n := range want {
		if got[name] != n {
			test.Errorf("%s is %d, want %d of %v", name, got[name], n, got)
		}
	}
}

// TestTier: an upstream is called under its policy, and what that did is counted.
func TestTier(t *testing.T) {
	var hits atomic.Int64
	at := upstreamAt(t, func(w http.ResponseWriter, _ *http.Request) {
		if hits.Add(1)%3 != 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	tier := tierWith(t, fmt.Sprintf("{upstreams: {back: {at: %q, policy: thrice}}, policies: {thrice: {retry: {max_attempts: 3}}}}", at))
	if w := ask(t.Context(), tier, "/a"); w.Code != http.StatusOK {
		t.Errorf("the third attempt succeeds, and the answer is %d", w.Code)
	}
	tier.want(t, map[string]int64{"hits": 1, "ok": 1, "errors": 0, "calls": 1, "attempts": 3, "retries": 2, "back.attempts": 3, "in_flight": 0})
	if err := tier.Set([]byte(fmt.Sprintf("{upstreams: {back: {at: %q}}}", at))); err != nil {
		t.Fatal(err)
	}
	if w := ask(t.Context(), tier, "/a"); w.Code != http.StatusBadGateway {
		t.Errorf("without a retry the answer is %d", w.Code)
	}
	tier.want(t, map[string]int64{"hits": 2, "errors": 1, "attempts": 4})
	tier.Reset()
	tier.want(t, map[string]int64{"hits": 0, "attempts": 0})
	if w := ask(t.Context(), tier, "/health"); w.Code != http.StatusOK || tier.Counters()["hits"] != 0 {
		t.Errorf("health: %d, %v", w.Code, tier.Counters())
	}
}

// TestTierBalance: further attempts go to the other replicas, and one that failed is left out.
func TestTierBalance(t *testing.T) {
	var sick, well atomic.Int64
	a := upstreamAt(t, func(w http.ResponseWriter, _ *http.Request) {
		sick.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	b := upstreamAt(t, func(http.ResponseWriter, *http.Request) { well.Add(1) })
	for eject, most := range map[string]int64{"0s": 10, "10s": 1} {
		sick.Store(0)
		well.Store(0)
		tier := tierWith(t, fmt.Sprintf("{upstreams: {u: {at: [%q, %q], balance: round_robin, eject: %s, policy: twice}}, policies: {twice: {retry: {max_attempts: 2}}}}", a, b, eject))
		for range 10 {
			if w := ask(t.Context(), tier, "/"); w.Code != http.StatusOK {
				t.Errorf("eject %s: %d", eject, w.Code)
			}
		}
		if n := sick.Load(); well.Load() != 10 || n > most || n == 0 || eject == "0s" && n < 3 {
			t.Errorf("eject %s: %d calls of the sick one, %d of the other", eject, n, well.Load())
		}
	}
}

// TestTierDeadline: one that obeys its caller's deadline stops its work with it, and one that
// does not, or does neither see the caller go nor hear of a deadline, works for nobody.
func TestTierDeadline(t *testing.T) {
	for settings, obeys := range map[string]bool{
		"{work: 400ms} told":                                            false,
		"{work: 400ms, obey_deadline: true}":                            true,
		"{work: 400ms, obey_deadline: true, ignore_leaving: true} told": true,
		"{work: 400ms, obey_deadline: true, ignore_leaving: true}":      false,
	} {
		settings, told := strings.CutSuffix(settings, " told")
		tier := tierWith(t, settings)
		var header []string
		if told {
			header = []string{policy.HeaderTimeout, "50m"}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		began := time.Now()
		ask(ctx, tier, "/", header...)
		cancel()
		took, c := time.Since(began), tier.Counters()
		if obeys && (took > 350*time.Millisecond || c["completed_for_nobody"] != 0 || c["work_ms"] > 350) {
			t.Errorf("%s: it obeys, and took %v: %v", settings, took, c)
		}
		if !obeys && (took < 400*time.Millisecond || c["completed_for_nobody"] != 1 || c["wasted_ms"] < 400 || c["late_ms"] < 300) {
			t.Errorf("%s: it does not obey, and took %v: %v", settings, took, c)
		}
	}
}

// TestTierMistakes: settings that are wrong change nothing.
func TestTierMistakes(t *testing.T) {
	tier := tierWith(t, "{status: 503}")
	for text, want := range map[string]string{
		"{status: 99}":         "status",
		"{work: 2h}":           "work",
		"{workers: -1}":        "workers",
		"{upstreams: {a: {}}}": "upstreams.a.at",
		"{upstreams: {a: {at: '127.0.0.1:80', policy: nobody}}}": "upstreams.a.policy",
		"{bogus: 1}": "bogus",
	} {
		if err := tier.Set([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if w := ask(t.Context(), tier, "/"); w.Code != 503 {
		t.Errorf("%d after settings that were refused", w.Code)
	}
}

// TestCountersAreTold: a server has the counters that a plan may ask for, and no others.
func TestCountersAreTold(t *testing.T) {
	tier := tierWith(t, "upstreams: {back: {at: \"127.0.0.1:1\"}}")
	echo := &echoCounts{}
	echo.around(http.NotFoundHandler()).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	for kind, c := range map[string]control.Controlled{control.HTTPEcho: echo, control.HTTPTier: tier, control.Payment: NewPayments()} {
		has := c.Counters()
		for name := range has {
			if !control.Counts(kind, name) {
				t.Errorf("%s: %s is not told", kind, name)
			}
		}
		ofLedger := []string{"rows", "doubled", "unanswered"}
		for _, name := range control.Counters(kind) {
			name = strings.NewReplacer("METHOD", "get", "UPSTREAM", "back").Replace(name)
			if _, ok := has[name]; !ok && (kind != control.Payment || !slices.Contains(ofLedger, name)) {
				t.Errorf("%s: there is no %s among %v", kind, name, has)
			}
		}
	}
}
