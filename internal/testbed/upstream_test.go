package testbed

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"netemd/probe"
	probehttp "netemd/probe/http"
	"netemd/probe/policy"
)

// replica is a server that can be sick.
type replica struct {
	at   string
	hits atomic.Int64
	sick atomic.Bool
}

func replicas(t *testing.T, n int) (all []*replica, at []string) {
	for range n {
		r := &replica{}
		r.at = upstreamAt(t, func(w http.ResponseWriter, _ *http.Request) {
			r.hits.Add(1)
			if r.sick.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		})
		all, at = append(all, r), append(at, fmt.Sprintf("%q", r.at))
	}
	return all, at
}

func hits(all []*replica) (n []int64) {
	for _, r := range all {
		n = append(n, r.hits.Swap(0))
	}
	return n
}

// on has a tier asked by the connection of that number.
func on(t *testing.T, tier *Tier, connection int) int {
	return ask(context.WithValue(t.Context(), connectionKey{}, connection), tier, "/").Code
}

// TestPinned: calls for a connection go to its replica, also after that failed and in further
// attempts; an ejected one is left for the next, until its time is over.
func TestPinned(t *testing.T) {
	all, at := replicas(t, 3)
	settings := func(eject string) string {
		return fmt.Sprintf("{upstreams: {u: {at: [%s, %s, %s], eject: %s, policy: twice}}, policies: {twice: {retry: {max_attempts: 2}}}}", at[0], at[1], at[2], eject)
	}
	tier := tierWith(t, settings("0s"))
	for c := range 6 {
		on(t, tier, c)
	}
	if got := hits(all); !slices.Equal(got, []int64{2, 2, 2}) {
		t.Errorf("six connections: %v", got)
	}
	all[1].sick.Store(true)
	if code := on(t, tier, 1); code != http.StatusBadGateway {
		t.Errorf("its replica is sick: %d", code)
	}
	if got := hits(all); !slices.Equal(got, []int64{0, 2, 0}) {
		t.Errorf("the attempts of a pinned call: %v", got)
	}

	tier = tierWith(t, settings("1s"))
	clock := time.Now()
	tier.now.Load().upstreams[0].now = func() time.Time { return clock }
	if code := on(t, tier, 1); code != http.StatusOK {
		t.Errorf("the second attempt has another replica: %d", code)
	}
	on(t, tier, 1)
	if got := hits(all); !slices.Equal(got, []int64{0, 1, 2}) {
		t.Errorf("with its replica ejected: %v", got)
	}
	tier.want(t, map[string]int64{"ejected": 1})
	clock = clock.Add(time.Second)
	all[1].sick.Store(false)
	on(t, tier, 1)
	if got := hits(all); !slices.Equal(got, []int64{0, 1, 0}) {
		t.Errorf("after its time: %v", got)
	}

	// All are ejected: its own is as good as any.
	for _, r := range all {
		r.sick.Store(true)
	}
	for range 3 {
		on(t, tier, 1)
	}
	hits(all)
	all[1].sick.Store(false)
	if code := on(t, tier, 1); code != http.StatusOK {
		t.Errorf("with all ejected: %d, %v", code, hits(all))
	}
}

// TestConnections: a server gives each connection of its callers a number of its own.
func TestConnections(t *testing.T) {
	all, at := replicas(t, 2)
	tier := tierWith(t, fmt.Sprintf("{upstreams: {u: {at: [%s, %s]}}}", at[0], at[1]))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- tier.Serve(ctx, l) }()
	first, _ := address(l.Addr().String())
	for want, keep := range map[bool][]int64{true: {4, 0}, false: {2, 2}} {
		p := &probehttp.Probe{Address: first, Keep: want}
		for i := range 4 {
			if s := p.Call(t.Context(), i); s.Class != probe.OK {
				t.Errorf("%v %s", s.Class, s.Error)
			}
		}
		_ = p.Close()
		got := hits(all)
		slices.Sort(got)
		slices.Reverse(got)
		if !slices.Equal(got, keep) {
			t.Errorf("four calls, kept connection %t: %v, want %v", want, got, keep)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestPool: a call that finds no place in time is given up, and a pool of its own keeps an
// upstream out of that.
func TestPool(t *testing.T) {
	free := make(chan struct{})
	slow := upstreamAt(t, func(http.ResponseWriter, *http.Request) { <-free })
	well := upstreamAt(t, func(http.ResponseWriter, *http.Request) {})
	for pool, want := range map[string]int{"pool: 1": http.StatusBadGateway, "pool: 5": http.StatusOK} {
		tier := tierWith(t, fmt.Sprintf("{%s, pool_wait: 30ms, upstreams: {slow: {at: %q, route: /slow}, well: {at: %q, route: /well}}}", pool, slow, well))
		var calls sync.WaitGroup
		calls.Go(func() { ask(t.Context(), tier, "/slow") })
		for tier.Counters()["slow.calls"] == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Millisecond) // it has its place
		if w := ask(t.Context(), tier, "/well"); w.Code != want {
			t.Errorf("%s: %d, want %d", pool, w.Code, want)
		}
		free <- struct{}{}
		calls.Wait()
		given := int64(0)
		if want != http.StatusOK {
			given = 1
		}
		tier.want(t, map[string]int64{"well.calls": 1, "well.rejected": given, "rejected": given, "well.ok": 1 - given, "slow.ok": 1, "calls": 2})
	}
}

// TestQueue: of requests that wait for a worker, those beyond the queue are refused at once.
func TestQueue(t *testing.T) {
	tier := tierWith(t, "{work: 100ms, workers: 1, queue: 2}")
	codes := make(chan int, 5)
	for range 5 {
		go func() { codes <- ask(t.Context(), tier, "/").Code }()
	}
	count := map[int]int{}
	for range 5 {
		count[<-codes]++
	}
	if count[http.StatusOK] != 3 || count[http.StatusServiceUnavailable] != 2 {
		t.Errorf("%v, want one at work, two that wait, and two refused", count)
	}
	tier.want(t, map[string]int64{"hits": 5, "ok": 3, "errors": 2, "refused": 2})
}

// TestMarked: an answer in which a fallback stood for an upstream says so, and is counted; a
// client reads that.
func TestMarked(t *testing.T) {
	sick := upstreamAt(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	tier := tierWith(t, fmt.Sprintf("{upstreams: {tips: {at: %q, policy: kind}}, policies: {kind: {fallback: {answer: default}}}}", sick))
	w := ask(t.Context(), tier, "/")
	if got := w.Header().Get(policy.HeaderDegraded); w.Code != http.StatusOK || got != "tips=default" {
		t.Errorf("%d, %q", w.Code, got)
	}
	tier.want(t, map[string]int64{"ok": 1, "degraded": 1})
	at, _ := address(upstreamAt(t, tier.ServeHTTP))
	p := &probehttp.Probe{Address: at}
	defer func() { _ = p.Close() }()
	if s := p.Call(t.Context(), 0); s.Class != probe.OK || s.Marked != "tips=default" || s.Degraded != "" {
		t.Errorf("%v, marked %q, degraded %q", s.Class, s.Marked, s.Degraded)
	}
}

// TestHeld: how long a request is under way for a caller that has gone is counted, also where
// the time is an upstream's.
func TestHeld(t *testing.T) {
	slow := upstreamAt(t, func(http.ResponseWriter, *http.Request) { time.Sleep(300 * time.Millisecond) })
	tier := tierWith(t, fmt.Sprintf("{upstreams: {u: {at: %q}}}", slow))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	ask(ctx, tier, "/")
	if c := tier.Counters(); c["held_ms"] < 200 || c["completed_for_nobody"] != 1 || c["work_ms"] != 0 {
		t.Errorf("%v", c)
	}
}
