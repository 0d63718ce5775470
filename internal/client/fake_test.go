package client

import (
	"context"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/wire"
	"netemd/qdisc"
)

// agent is a fake that holds faults as the contract says. Its faults outlive its server,
// so that one can be started again.
type agent struct {
	netemv1.UnimplementedFaultsServer
	netemv1.UnimplementedSystemServer
	// grace is how long a fault stands after its stream broke.
	grace time.Duration
	// stopped ends every watch.
	stopped bool

	mu     sync.Mutex
	next   uint64
	faults map[string]*fakeFault
	log    []string
	// waits is the conflict that stands until it is closed, nil for none.
	waits chan struct{}
	// hang makes Get and Apply hang until their context ends.
	hang bool
	// spec is of the last apply.
	spec fault.Spec
}

type fakeFault struct {
	fault fault.Fault
	token uint64
	// events are for the stream that has it.
	events chan wire.Held
}

func newAgent() *agent { return &agent{faults: map[string]*fakeFault{}, grace: 0} }

func (a *agent) note(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.log = append(a.log, fmt.Sprintf(format, args...))
}

func (a *agent) logged() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]string(nil), a.log...)
}

// standing are the faults that stand.
func (a *agent) standing() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.faults)
}

func (a *agent) Hold(stream grpc.BidiStreamingServer[netemv1.HoldRequest, netemv1.HoldResponse]) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	var f *fakeFault
	if r := first.GetResume(); r != nil {
		f, err = a.resume(r.GetId(), r.GetToken())
	} else {
		f, err = a.make(stream, first.GetApply())
	}
	if err != nil {
		return wire.Status(err)
	}
	a.mu.Lock()
	token := f.token
	first1 := wire.Held{Fault: f.fault, Token: token, Kind: "applied"}
	a.mu.Unlock()
	if err := stream.Send(wire.HoldResponse(first1)); err != nil {
		return a.dropped(f, token)
	}
	asked := make(chan *netemv1.HoldRequest)
	go func() {
		defer close(asked)
		for {
			m, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case asked <- m:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		select {
		case <-stream.Context().Done():
			return a.dropped(f, token)
		case h := <-f.events:
			_ = stream.Send(wire.HoldResponse(h))
			if h.Kind == "expired" || h.Kind == "cleared" {
				return nil
			}
		case m, ok := <-asked:
			switch {
			case !ok:
				return a.dropped(f, token)
			case m.GetRenew() != nil:
				a.note("renew %s", f.fault.ID)
				_ = stream.Send(wire.HoldResponse(wire.Held{Fault: f.fault, Token: token, Kind: "renewed"}))
			case m.GetRelease() != nil:
				a.end(f, "release")
				last := f.fault
				last.State, last.Counters.Lost = fault.Cleared, 7
				return stream.Send(wire.HoldResponse(wire.Held{Fault: last, Token: token, Kind: "cleared"}))
			}
		}
	}
}

func (a *agent) make(stream grpc.BidiStreamingServer[netemv1.HoldRequest, netemv1.HoldResponse], r *netemv1.ApplyRequest) (*fakeFault, error) {
	s, err := wire.ApplyOf(r)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	waits := a.waits
	a.mu.Unlock()
	if waits != nil {
		if s.Wait == 0 {
			return nil, fmt.Errorf("apply: %w: pg is held by uid 7", fault.ErrConflict)
		}
		_ = stream.Send(wire.HoldResponse(wire.Held{Kind: wire.Waiting, Detail: "conflict: pg is held by uid 7"}))
		select {
		case <-waits:
		case <-stream.Context().Done():
			a.note("gave up waiting")
			return nil, context.Canceled
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spec = s
	a.next++
	f := &fakeFault{token: a.next, events: make(chan wire.Held, 8), fault: fault.Fault{
		ID: fmt.Sprintf("f%d", a.next), Spec: s, State: fault.Active, Engine: fault.EBPF, Applied: time.Now(), Expires: time.Now().Add(s.TTL), Token: a.next,
	}}
	a.faults[f.fault.ID] = f
	a.log = append(a.log, "apply "+f.fault.ID)
	return f, nil
}

func (a *agent) resume(id string, token uint64) (*fakeFault, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.faults[id]
	switch {
	case f == nil:
		return nil, fmt.Errorf("resume %s: %w", id, fs.ErrNotExist)
	case f.token != token:
		return nil, fmt.Errorf("resume %s: %w: it is held by a newer stream", id, fault.ErrConflict)
	}
	a.next++
	f.token, f.fault.Token = a.next, a.next
	a.log = append(a.log, "resume "+id)
	return f, nil
}

// dropped is what a broken stream does.
func (a *agent) dropped(f *fakeFault, token uint64) error {
	time.AfterFunc(a.grace, func() {
		a.mu.Lock()
		mine := f.token == token && a.faults[f.fault.ID] == f
		a.mu.Unlock()
		if mine {
			a.end(f, "drop")
		}
	})
	return nil
}

func (a *agent) end(f *fakeFault, why string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.faults, f.fault.ID)
	a.log = append(a.log, why+" "+f.fault.ID)
}

// happen tells the holder of a fault.
func (a *agent) happen(id, kind string, s fault.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.faults[id]
	f.fault.State = s
	f.events <- wire.Held{Fault: f.fault, Token: f.token, Kind: kind}
	if kind == "cleared" || kind == "expired" {
		delete(a.faults, id)
	}
}

func (a *agent) Get(ctx context.Context, r *netemv1.GetRequest) (*netemv1.Fault, error) {
	a.mu.Lock()
	f, hang := a.faults[r.GetId()], a.hang
	a.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	if f == nil {
		return nil, wire.Status(fmt.Errorf("fault %s: %w", r.GetId(), fs.ErrNotExist))
	}
	return wire.Fault(f.fault), nil
}

func (a *agent) Clear(_ context.Context, r *netemv1.ClearRequest) (*netemv1.ClearResponse, error) {
	a.mu.Lock()
	f := a.faults[r.GetId()]
	a.mu.Unlock()
	a.note("clear %s", r.GetId())
	if f == nil {
		return &netemv1.ClearResponse{}, nil
	}
	a.end(f, "cleared")
	return &netemv1.ClearResponse{Cleared: wire.Faults([]fault.Fault{f.fault})}, nil
}

func (a *agent) Apply(_ context.Context, r *netemv1.ApplyRequest) (*netemv1.Fault, error) {
	s, err := wire.ApplyOf(r)
	if err != nil {
		return nil, wire.Status(err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spec = s
	return wire.Fault(fault.Fault{ID: "f1", Spec: s, State: fault.Active}), nil
}

func (a *agent) Watch(r *netemv1.WatchRequest, stream grpc.ServerStreamingServer[netemv1.Event]) error {
	if r.GetLife() != "" && r.GetLife() != "xyz" {
		return wire.Status(fmt.Errorf("%w: this agent's life is xyz", fault.ErrMissed))
	}
	_ = stream.Send(wire.Event(fault.Event{Number: r.GetAfter() + 1, Life: "xyz", Kind: "lost", Monotonic: 5, Fault: fault.Fault{ID: "f1", State: fault.Lost}}))
	if a.stopped {
		return nil
	}
	<-stream.Context().Done()
	return nil
}

// serve starts a server of a's, and returns what stops it as a crash would.
func (a *agent) serve(t *testing.T, l net.Listener, secure credentials.TransportCredentials) (kill func()) {
	t.Helper()
	s := grpc.NewServer(grpc.Creds(secure), grpc.MaxRecvMsgSize(wire.MaxRequest),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: wire.ServerMinPing, PermitWithoutStream: true}))
	netemv1.RegisterFaultsServer(s, a)
	netemv1.RegisterSystemServer(s, a)
	healthv1.RegisterHealthServer(s, health.NewServer())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l)
	}()
	var once sync.Once
	kill = func() { once.Do(func() { s.Stop(); <-done }) }
	t.Cleanup(kill)
	return kill
}

// onSocket serves a at a unix socket.
func (a *agent) onSocket(t *testing.T) (socket string, kill func()) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	return socket, a.serve(t, l, insecure.NewCredentials())
}

func open(t *testing.T, e Endpoint) *Client {
	t.Helper()
	c, err := Open(e)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func spec() fault.Spec {
	return fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 20}, TTL: 30 * time.Second}
}

// told collects what a holder is told.
type told struct {
	mu    sync.Mutex
	kinds []string
	more  chan struct{}
}

func newTold() *told { return &told{more: make(chan struct{}, 100)} }

func (w *told) notify(e fault.Event, words string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kinds = append(w.kinds, e.Kind)
	w.more <- struct{}{}
}

// wait waits for n things.
func (w *told) wait(t *testing.T, n int) []string {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		w.mu.Lock()
		got := append([]string(nil), w.kinds...)
		w.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-w.more:
		case <-limit:
			t.Fatalf("told only %v", got)
		}
	}
}

// eventually waits until f holds.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("not in 20 s: %s", what)
		}
	}
}

func insecureCredentials() credentials.TransportCredentials { return insecure.NewCredentials() }
