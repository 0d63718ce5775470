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
	// wait is how long a call waits for a place in it; 0: as long as it may.
	wait time.Duration
	seq  atomic.Int64

	replicas []string
	mu       sync.Mutex
	// out is until when a replica is ejected.
	out []time.Time
	now func() time.Time
}

type requestKey struct{}

// asked is what each attempt of a call sends.
type asked struct {
	method, path string
	// connection is the number of the caller's, from 0.
	connection int
}

func (t *Tier) upstream(name string, u settings.Upstream, s settings.Tier, shared chan struct{}) (*upstream, error) {
	made := &upstream{
		Upstream: u, name: name, count: t.add, pool: shared, wait: s.PoolWait,
		replicas: u.At, out: make([]time.Time, len(u.At)), now: time.Now,
	}
	if u.Pool > 0 {
		made.pool = make(chan struct{}, u.Pool)
	}
	for _, at := range u.At {
		if _, err := address(at); err != nil {
			return nil, err
		}
	}
	for _, c := range []string{"calls", "ok", "attempts", "retries", "rejected"} {
		t.add(name+"."+c, 0)
	}
	var err error
	made.client, err = policy.New(s.Uses[name], made, policy.Options{}) // the settings refuse hedges of what may not be made twice
	return made, err
}

// both counts for the tier and for the upstream.
func (u *upstream) both(name string, n int64) {
	u.count(name, n)
	u.count(u.name+"."+name, n)
}

var errPool = errors.New("no place in the pool")

// place waits for a place in the pool.
func (u *upstream) place(ctx context.Context) error {
	if u.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, u.wait, errPool)
		defer cancel()
	}
	select {
	case u.pool <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// call makes one logical call. The error is why nobody answered it well; degraded names the
// answer of a fallback.
func (u *upstream) call(ctx context.Context, r *http.Request) (degraded string, err error) {
	u.both("calls", 1)
	if u.pool != nil {
		if err := u.place(ctx); err != nil {
			u.both("rejected", 1)
			return "", err
		}
		defer func() { <-u.pool }()
	}
	ctx = context.WithValue(ctx, requestKey{}, asked{cmp.Or(u.Method, r.Method), cmp.Or(u.Path, r.URL.Path), connectionOf(r)})
	s := u.client.Call(ctx, int(u.seq.Add(1)-1))
	made := int64(len(s.Attempts))
	u.both("attempts", made)
	u.both("retries", max(0, made-1))
	if s.Class == probe.Rejected {
		u.both("rejected", 1)
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
	i := u.choose(seq, policy.Attempt(ctx), ask.connection)
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

// choose is the replica of an attempt, from 1, of a call, from 0, for a caller's connection,
// from 0. What is ejected is passed over, unless all are.
func (u *upstream) choose(seq, attempt, connection int) int {
	n := len(u.replicas)
	first := connection % n
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
