package testbed

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"netemd/internal/testbed/settings"
	"netemd/probe"
	probehttp "netemd/probe/http"
	"netemd/probe/policy"
)

// upstream is what a tier calls, by new connections.
type upstream struct {
	settings.Upstream
	name   string
	count  func(name string, n int64)
	client *policy.Client
	// pool bounds the calls under way; nil for none.
	pool chan struct{}
	seq  atomic.Int64

	replicas []string
	mu       sync.Mutex
	// out is until when a replica is ejected.
	out []time.Time
	now func() time.Time
}

type requestKey struct{}

// asked is what each attempt of a call sends.
type asked struct{ method, path string }

func (t *Tier) upstream(name string, u settings.Upstream, p policy.Policy, shared chan struct{}) (*upstream, error) {
	made := &upstream{Upstream: u, name: name, count: t.add, pool: shared, replicas: u.At, out: make([]time.Time, len(u.At)), now: time.Now}
	if u.Pool > 0 {
		made.pool = make(chan struct{}, u.Pool)
	}
	for _, at := range u.At {
		if _, err := address(at); err != nil {
			return nil, err
		}
	}
	for _, c := range []string{"calls", "ok", "attempts", "retries"} {
		t.add(name+"."+c, 0)
	}
	var err error
	made.client, err = policy.New(p, made, policy.Options{Unsafe: u.Method != "" && u.Method != http.MethodGet})
	return made, err
}

// call makes one logical call. The error is why nobody answered it well; degraded names the
// answer of a fallback.
func (u *upstream) call(ctx context.Context, r *http.Request) (degraded string, err error) {
	if u.pool != nil {
		select {
		case u.pool <- struct{}{}:
			defer func() { <-u.pool }()
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
	ctx = context.WithValue(ctx, requestKey{}, asked{cmp.Or(u.Method, r.Method), cmp.Or(u.Path, r.URL.Path)})
	s := u.client.Call(ctx, int(u.seq.Add(1)-1))
	made := int64(len(s.Attempts))
	for _, prefix := range []string{"", u.name + "."} {
		u.count(prefix+"calls", 1)
		u.count(prefix+"attempts", made)
		u.count(prefix+"retries", max(0, made-1))
	}
	if s.Class == probe.Rejected {
		u.count("rejected", 1)
	}
	if s.Class != probe.OK {
		return "", errors.New(s.Error)
	}
	u.count(u.name+".ok", 1)
	return s.Degraded, nil
}

// Call implements probe.Caller: one attempt, at the replica whose turn it is.
func (u *upstream) Call(ctx context.Context, seq int) probe.Sample {
	ask, _ := ctx.Value(requestKey{}).(asked)
	i := u.choose(seq, policy.Attempt(ctx))
	at, err := address(u.replicas[i])
	if err != nil {
		return probe.Sample{Seq: seq, Class: probe.Other, Error: err.Error()} // settings have been read
	}
	p := &probehttp.Probe{Address: at, Method: ask.method, Path: ask.path}
	defer func() { _ = p.Close() }()
	s := p.Call(ctx, seq)
	if s.Class != probe.OK && u.Eject > 0 && !errors.Is(ctx.Err(), context.Canceled) {
		u.mu.Lock()
		u.out[i] = u.now().Add(u.Eject)
		u.mu.Unlock()
		u.count("ejected", 1)
	}
	return s
}

// choose is the replica of an attempt, from 1, of a call, from 0. What is ejected is passed
// over, unless all are.
func (u *upstream) choose(seq, attempt int) int {
	n := len(u.replicas)
	first := 0
	if u.Balance == settings.RoundRobin {
		first = (seq + max(attempt, 1) - 1) % n
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for k := range n {
		if i := (first + k) % n; !u.now().Before(u.out[i]) {
			return i
		}
	}
	return first
}
