package lease

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// fakeEngine is a kernel in memory.
type fakeEngine struct {
	mu       sync.Mutex
	at       map[string]qdisc.Netem
	deadline map[string]time.Time
	failSet  func(p target.Place, n qdisc.Netem) error
	failFree error
	counted  fault.Counters
	queued   uint64
	gone     bool
	// exists, when it is not nil, says which places there are.
	exists func(target.Place) bool
	// covered, when it is not nil, says whether the journal knows of a place.
	covered func(target.Place) bool
	// ops is what was done, in order: "set KEY", "clear KEY".
	ops []string
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{at: map[string]qdisc.Netem{}, deadline: map[string]time.Time{}}
}

func (e *fakeEngine) Set(_ context.Context, p target.Place, n qdisc.Netem, deadline time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	if e.exists != nil && !e.exists(p) {
		return fs.ErrNotExist
	}
	if e.covered != nil && !e.covered(p) {
		panic("a place is changed that is in no journal: " + p.String())
	}
	if e.failSet != nil {
		if err := e.failSet(p, n); err != nil {
			return err
		}
	}
	e.at[p.Key()], e.deadline[p.Key()] = n, deadline
	e.ops = append(e.ops, "set "+p.Match.String())
	return nil
}

func (e *fakeEngine) Read(ctx context.Context, p target.Place) (fault.Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ctx.Err() != nil {
		return fault.Status{}, context.Cause(ctx)
	}
	if e.gone || e.exists != nil && !e.exists(p) {
		return fault.Status{}, fs.ErrNotExist
	}
	return fault.Status{Netem: e.at[p.Key()], Counters: e.counted, Queued: e.queued}, nil
}

func (e *fakeEngine) Clear(_ context.Context, p target.Place) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.exists != nil && !e.exists(p) {
		return fs.ErrNotExist
	}
	if e.failFree != nil {
		return e.failFree
	}
	delete(e.at, p.Key())
	e.ops = append(e.ops, "clear "+p.Match.String())
	return nil
}

// done returns what was done since it was asked last.
func (e *fakeEngine) done() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	ops := e.ops
	e.ops = nil
	return ops
}

// failSets makes setting fail where f says so; nil makes it work again.
func (e *fakeEngine) failSets(f func(target.Place, qdisc.Netem) error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failSet = f
}

func (e *fakeEngine) Close() error { return nil }

// failClear makes clearing fail with err, or work again.
func (e *fakeEngine) failClear(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failFree = err
}

func (e *fakeEngine) count(c fault.Counters) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counted = e.counted.Add(c)
}

// inForce is what the kernel holds.
func (e *fakeEngine) inForce() map[string]qdisc.Netem {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.at)
}

// meddle is somebody else's change of the kernel.
func (e *fakeEngine) meddle(p target.Place, n qdisc.Netem) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.at[p.Key()] = n
}

// fakeProxy is a stream engine in memory.
type fakeProxy struct {
	toxics map[string][]fault.Toxic
	// hang, when not nil, holds every call until it is closed.
	hang chan struct{}
	// gone is what Read meets.
	gone error
}

func (p *fakeProxy) wait(ctx context.Context) error {
	if p.hang == nil {
		return nil
	}
	select {
	case <-p.hang:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *fakeProxy) Set(ctx context.Context, t target.Target, toxics []fault.Toxic, _ time.Time) error {
	if err := p.wait(ctx); err != nil {
		return err
	}
	p.toxics[t.Name] = fault.NormalizeToxics(toxics)
	return nil
}

func (p *fakeProxy) Read(ctx context.Context, t target.Target) ([]fault.Toxic, error) {
	return p.toxics[t.Name], errors.Join(p.gone, p.wait(ctx))
}

func (p *fakeProxy) Clear(_ context.Context, t target.Target) error {
	delete(p.toxics, t.Name)
	return nil
}

var (
	to   = target.Place{Namespace: "netem-pg-wire", Device: "server", Index: 2, Hook: target.Egress, Owned: true}
	from = target.Place{Namespace: "netem-pg-wire", Device: "client", Index: 3, Hook: target.Egress, Owned: true}
)

func newManager(t *testing.T, e *fakeEngine) *Manager {
	t.Helper()
	return newManagerWith(t, e, &fakeProxy{toxics: map[string][]fault.Toxic{}})
}

func newManagerWith(t *testing.T, e *fakeEngine, p *fakeProxy) *Manager {
	t.Helper()
	m := New(Config{
		Engines: map[fault.Engine]Engine{fault.EBPF: e},
		Choose:  func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "test", nil },
		Stream:  p,
		Resolve: func(_ context.Context, s fault.Spec) (target.Target, error) {
			switch s.Target {
			case "pg":
				return target.Target{Name: "pg", To: to, From: from, Proxy: netip.MustParseAddrPort("10.77.0.2:15432")}, nil
			case "bare":
				return target.Target{Name: "bare", To: to, From: from}, nil
			}
			return target.Target{}, target.ErrUnknown
		},
		Log: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil && e.failFree == nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

func loss(p qdisc.Percent) fault.Spec {
	return fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: p}, Owner: "uid 0"}
}

func delay(d time.Duration) fault.Spec {
	return fault.Spec{Target: "pg", Packet: &qdisc.Netem{Delay: d}, Owner: "uid 0"}
}

func TestFaultsOfOneOwnerCombine(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	ctx := t.Context()
	first, err := m.Apply(ctx, loss(20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(ctx, delay(10*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	want := map[string]qdisc.Netem{to.Key(): {Loss: 20, Delay: 10 * time.Millisecond}}
	if diff := cmp.Diff(want, e.inForce()); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	if _, err := m.Clear(ctx, fault.Selector{ID: first.ID}, "uid 0"); err != nil {
		t.Fatal(err)
	}
	want = map[string]qdisc.Netem{to.Key(): {Delay: 10 * time.Millisecond}}
	if diff := cmp.Diff(want, e.inForce()); diff != "" {
		t.Errorf("after the first was cleared (-want +got):\n%s", diff)
	}
}

func TestConflicts(t *testing.T) {
	other := loss(5)
	other.Owner = "uid 1000 (bob)"
	netem := delay(time.Millisecond)
	netem.Engine = fault.Netem
	for name, tt := range map[string]struct {
		spec fault.Spec
		want string
	}{
		"another owner":      {other, "held by uid 0"},
		"the same thing":     {loss(5), "loss is set by fault "},
		"a different engine": {netem, "engine ebpf carries a fault"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine()
			m := newManager(t, e)
			if _, err := m.Apply(t.Context(), loss(20)); err != nil {
				t.Fatal(err)
			}
			_, err := m.Apply(t.Context(), tt.spec)
			if !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want a conflict that says %q", err, tt.want)
			}
			if diff := cmp.Diff(map[string]qdisc.Netem{to.Key(): {Loss: 20}}, e.inForce()); diff != "" {
				t.Errorf("the refused apply changed the kernel (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedApplyLeavesWhatWas(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	if _, err := m.Apply(t.Context(), loss(20)); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("no such device")
	e.failSet = func(p target.Place, _ qdisc.Netem) error {
		if p.Key() == from.Key() {
			return broken
		}
		return nil
	}
	both := delay(10 * time.Millisecond)
	both.Direction = fault.Both
	if _, err := m.Apply(t.Context(), both); !errors.Is(err, broken) {
		t.Fatalf("error %v, want %v", err, broken)
	}
	if diff := cmp.Diff(map[string]qdisc.Netem{to.Key(): {Loss: 20}}, e.inForce()); diff != "" {
		t.Errorf("after a failed apply (-want +got):\n%s", diff)
	}
	if n := len(m.List(t.Context())); n != 1 {
		t.Errorf("%d faults listed, want 1", n)
	}
}

func TestFailedApplyThatCannotBeUndoneIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		broken := errors.New("no such device")
		e.failSets(func(p target.Place, _ qdisc.Netem) error {
			if p.Key() == from.Key() {
				return broken
			}
			return nil
		})
		e.failClear(fs.ErrPermission)
		both := delay(10 * time.Millisecond)
		both.Direction = fault.Both
		if _, err := m.Apply(t.Context(), both); !errors.Is(err, broken) || !errors.Is(err, fs.ErrPermission) {
			t.Fatalf("error %v, want %v and %v", err, broken, fs.ErrPermission)
		}
		list := m.List(t.Context())
		if len(list) != 1 || !strings.Contains(strings.Join(list[0].Warnings, " "), "could not be undone") {
			t.Fatalf("listed: %+v, want what is still in force, with a warning", list)
		}
		e.failSets(nil)
		if _, err := m.Apply(t.Context(), both); !errors.Is(err, fault.ErrConflict) {
			t.Errorf("on top of what is left: %v, want a conflict", err)
		}
		e.failClear(nil)
		time.Sleep(firstRetry + time.Second)
		if len(e.inForce()) != 0 || len(m.List(t.Context())) != 0 {
			t.Errorf("in force %v, listed %v", e.inForce(), m.List(t.Context()))
		}
		if _, err := m.Apply(t.Context(), both); err != nil {
			t.Errorf("once more: %v", err)
		}
	})
}

func TestChange(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	f, err := m.Apply(t.Context(), fault.Spec{Target: "pg", Owner: "uid 0", Packet: &qdisc.Netem{Loss: 5, Delay: 10 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	zero := qdisc.Percent(0)
	if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: &zero}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(qdisc.Netem{Delay: 10 * time.Millisecond}, e.inForce()[to.Key()]); diff != "" {
		t.Errorf("loss set to 0 (-want +got):\n%s", diff)
	}
	if _, err := m.Change(t.Context(), f.ID, "uid 7", 0, qdisc.Patch{Loss: &zero}); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("change by another owner: %v, want a conflict", err)
	}
	if _, err := m.Change(t.Context(), "f99", "uid 0", 0, qdisc.Patch{}); !errors.Is(err, ErrUnknownFault) {
		t.Errorf("change of an unknown fault: %v", err)
	}
	bad := qdisc.Percent(120)
	if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: &bad}); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("loss 120%%: %v, want invalid", err)
	}
}

func TestExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		short := loss(20)
		short.TTL = 5 * time.Second
		f, err := m.Apply(t.Context(), short)
		if err != nil {
			t.Fatal(err)
		}
		if !e.deadline[to.Key()].Equal(f.Applied.Add(5 * time.Second)) {
			t.Errorf("the engine's deadline is %v after the apply, want 5s", e.deadline[to.Key()].Sub(f.Applied))
		}
		time.Sleep(3 * time.Second)
		if _, err := m.Renew(t.Context(), f.ID, "uid 0", 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4999 * time.Millisecond)
		if len(e.inForce()) != 1 {
			t.Fatal("a renewed fault ended too early")
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if len(e.inForce()) != 0 || len(m.List(t.Context())) != 0 {
			t.Error("the fault is still there after its time")
		}
	})
}

func TestFailedClearingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		s := loss(20)
		s.TTL = time.Second
		if _, err := m.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		e.failClear(fs.ErrPermission)
		time.Sleep(1500 * time.Millisecond)
		list := m.List(t.Context())
		if len(list) != 1 || !strings.Contains(strings.Join(list[0].Warnings, " "), "clear failed") {
			t.Fatalf("listed: %+v, want the fault with a warning", list)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("clear: %v, want permission denied", err)
		}
		e.failClear(nil)
		time.Sleep(2 * time.Second)
		if len(m.List(t.Context())) != 0 {
			t.Error("clearing was not tried again")
		}
	})
}

func TestLookFindsLostAndDrifted(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	f, err := m.Apply(t.Context(), loss(20))
	if err != nil {
		t.Fatal(err)
	}
	events := watch(t, m)
	e.count(fault.Counters{Seen: 10, Lost: 2})
	if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Active || got.Counters.Lost != 2 {
		t.Errorf("state %s, counters %+v, want active with 2 lost", got.State, got.Counters)
	}
	e.meddle(to, qdisc.Netem{Loss: 10})
	if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Drifted {
		t.Errorf("state %s after a change behind our back, want drifted", got.State)
	}
	e.gone = true
	if got, _ := m.Get(t.Context(), f.ID); got.State != fault.Lost {
		t.Errorf("state %s after the device went, want lost", got.State)
	}
	e.failSets(func(target.Place, qdisc.Netem) error { return fs.ErrNotExist })
	if _, err := m.Renew(t.Context(), f.ID, f.Spec.Owner, time.Minute); err == nil || !strings.Contains(err.Error(), "is lost: what it was placed at is gone; 'netemctl clear "+f.ID+"'") {
		t.Errorf("renewing a lost fault: %v", err)
	}
	e.failSets(nil)
	if diff := cmp.Diff([]string{"drifted", "lost"}, []string{<-events, <-events}); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// watch returns the kinds of the events from now on.
func watch(t *testing.T, m *Manager) <-chan string {
	t.Helper()
	kinds := make(chan string, 16)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		_ = m.Watch(ctx, 0, "", func(e fault.Event) error { kinds <- e.Kind; return nil })
	}()
	t.Cleanup(func() { cancel(); <-done })
	for {
		m.events.mu.Lock()
		n := len(m.events.subs)
		m.events.mu.Unlock()
		if n > 0 {
			return kinds
		}
		time.Sleep(time.Millisecond)
	}
}

func TestClear(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	f, err := m.Apply(t.Context(), loss(20))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 1000"); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("clear by another owner: %v, want a conflict", err)
	}
	if got, err := m.Clear(t.Context(), fault.Selector{Target: "pg"}, ""); err != nil || len(got) != 1 || got[0].State != fault.Cleared {
		t.Errorf("clear by root: %+v, %v", got, err)
	}
	if got, err := m.Clear(t.Context(), fault.Selector{All: true}, "uid 0"); err != nil || len(got) != 0 {
		t.Errorf("clear of nothing: %+v, %v", got, err)
	}
	if got, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil || len(got) != 0 {
		t.Errorf("clear of a fault that has ended: %+v, %v", got, err)
	}
	for _, id := range []string{"f99", f.ID + "9", f.ID[:3], f.ID[:3] + "0"} {
		if _, err := m.Clear(t.Context(), fault.Selector{ID: id}, "uid 0"); !errors.Is(err, ErrUnknownFault) {
			t.Errorf("clear of %s, which never was: %v", id, err)
		}
	}
}

func toxic(target string, t fault.Toxic) fault.Spec {
	return fault.Spec{Target: target, Owner: "uid 0", Toxics: []fault.Toxic{t}}
}

func TestStreamFaults(t *testing.T) {
	p := &fakeProxy{toxics: map[string][]fault.Toxic{}}
	m := newManagerWith(t, newFakeEngine(), p)
	latency := fault.Toxic{Kind: fault.Latency, Latency: time.Second}
	if _, err := m.Apply(t.Context(), toxic("bare", latency)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a target without a proxy: %v, want unsupported", err)
	}
	first, err := m.Apply(t.Context(), toxic("pg", latency))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(t.Context(), toxic("pg", latency)); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("the same toxic twice: %v, want a conflict", err)
	}
	if _, err := m.Apply(t.Context(), toxic("pg", fault.Toxic{Kind: fault.Down})); err != nil {
		t.Fatal(err)
	}
	if len(p.toxics["pg"]) != 2 {
		t.Errorf("in force: %+v, want both", p.toxics)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{ID: first.ID}, ""); err != nil {
		t.Fatal(err)
	}
	if got := p.toxics["pg"]; len(got) != 1 || got[0].Kind != fault.Down {
		t.Errorf("after the first was cleared: %+v, want down", got)
	}
	p.toxics["pg"] = nil
	if got := m.List(t.Context()); len(got) != 1 || got[0].State != fault.Drifted {
		t.Errorf("list: %+v, want one that drifted", got)
	}
}

func TestHungProxyHoldsUpNoPacketFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, p := newFakeEngine(), &fakeProxy{toxics: map[string][]fault.Toxic{}}
		m := newManagerWith(t, e, p)
		if _, err := m.Apply(t.Context(), toxic("pg", fault.Toxic{Kind: fault.Down})); err != nil {
			t.Fatal(err)
		}
		p.hang = make(chan struct{})
		go func() { _, _ = m.Clear(t.Context(), fault.Selector{All: true}, "") }()
		synctest.Wait()
		began := time.Now()
		s := loss(20)
		s.TTL = 2 * time.Second
		if _, err := m.Apply(t.Context(), s); err != nil || time.Since(began) > 0 {
			t.Errorf("apply beside a hung proxy: %v after %v", err, time.Since(began))
		}
		if got := m.List(t.Context()); len(got) != 2 || time.Since(began) > 2*lookTime {
			t.Errorf("list beside a hung proxy: %d faults after %v", len(got), time.Since(began))
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(e.inForce()) != 0 {
			t.Error("the packet fault outlived its time")
		}
		close(p.hang)
		synctest.Wait()
	})
}

func TestInterruptedLookChangesNothing(t *testing.T) {
	m := newManager(t, newFakeEngine())
	f, err := m.Apply(t.Context(), loss(20))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got := m.List(ctx); len(got) != 1 || got[0].State != fault.Active {
		t.Errorf("list of a client that has gone: %+v, want an active fault", got)
	}
	if got, err := m.Get(t.Context(), f.ID); err != nil || got.State != fault.Active {
		t.Errorf("afterwards: %s, %v", got.State, err)
	}
}

func TestRetireShutsNewFaultsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		up := true
		resolve := m.cfg.Resolve
		m.cfg.Resolve = func(ctx context.Context, s fault.Spec) (target.Target, error) {
			if !up {
				return target.Target{}, target.ErrUnknown
			}
			return resolve(ctx, s)
		}
		if _, err := m.Apply(t.Context(), loss(20)); err != nil {
			t.Fatal(err)
		}
		e.failClear(errors.New("clearing fails"))
		late := make(chan error, 1)
		err := m.Retire(t.Context(), []string{"pg"}, func(context.Context) error {
			go func() {
				_, err := m.Apply(context.Background(), delay(time.Second))
				late <- err
			}()
			synctest.Wait()
			up = false
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-late; !errors.Is(err, target.ErrUnknown) {
			t.Errorf("a fault that came while the target went: %v, want unknown target", err)
		}
		if got := m.List(t.Context()); len(got) != 0 {
			t.Errorf("list: %+v, want nothing: the fault went with its target", got)
		}
	})
}

// Who decides by a target's faults sees one that was being applied when he asked.
func TestRetireDecidesByWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := newManager(t, e)
		resolve := m.cfg.Resolve
		asked := 0
		m.cfg.Resolve = func(ctx context.Context, s fault.Spec) (target.Target, error) {
			if asked++; asked == 2 {
				time.Sleep(time.Second) // on its way, and not held yet
			}
			return resolve(ctx, s)
		}
		applied := make(chan error, 1)
		go func() {
			_, err := m.Apply(t.Context(), loss(20))
			applied <- err
		}()
		synctest.Wait()
		if on := m.Named(fault.Selector{Target: "pg"}); len(on) > 0 {
			t.Fatalf("it is there already: %+v", on)
		}
		refused := errors.New("there is a fault")
		err := m.RetireIf(t.Context(), []string{"pg"}, func(on []fault.Fault) error {
			if len(on) != 1 {
				t.Errorf("%+v, want the one that came", on)
			}
			return refused
		}, func(context.Context) error { t.Error("the target went"); return nil })
		if !errors.Is(err, refused) {
			t.Errorf("%v, want the refusal", err)
		}
		if err := <-applied; err != nil {
			t.Error(err)
		}
		if got := m.List(t.Context()); len(got) != 1 || got[0].State != fault.Active {
			t.Errorf("list: %+v, want the fault as it was", got)
		}
	})
}

func TestWatchingFindsWhatNobodyAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newFakeEngine()
		m := New(Config{
			Engines: map[fault.Engine]Engine{fault.EBPF: e}, LookEvery: 500 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
			Choose: func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "test", nil },
			Resolve: func(context.Context, fault.Spec) (target.Target, error) {
				return target.Target{Name: "pg", To: to, From: from}, nil
			},
		})
		defer func() { _ = m.Close(context.Background()) }()
		events := watch(t, m)
		if _, err := m.Apply(t.Context(), loss(20)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		e.meddle(to, qdisc.Netem{Loss: 10})
		time.Sleep(time.Second)
		synctest.Wait()
		e.meddle(to, qdisc.Netem{Loss: 20})
		time.Sleep(time.Second)
		synctest.Wait()
		if diff := cmp.Diff([]string{"applied", "drifted", "repaired"}, []string{<-events, <-events, <-events}); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestUnknownTargetAndShutdown(t *testing.T) {
	m := newManager(t, newFakeEngine())
	s := loss(20)
	s.Target = "nope"
	if _, err := m.Apply(t.Context(), s); !errors.Is(err, target.ErrUnknown) {
		t.Errorf("unknown target: %v", err)
	}
	if err := m.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(t.Context(), loss(20)); err == nil {
		t.Error("a closed manager took a fault")
	}
}

func TestCountersBeginWithTheFaultAndItsChange(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	if _, err := m.Apply(t.Context(), delay(time.Second)); err != nil {
		t.Fatal(err)
	}
	e.count(fault.Counters{Seen: 100, Delayed: 100})
	f, err := m.Apply(t.Context(), loss(20))
	if err != nil {
		t.Fatal(err)
	}
	e.count(fault.Counters{Seen: 10, Lost: 2})
	if got, _ := m.Get(t.Context(), f.ID); got.Counters != (fault.Counters{Seen: 10, Lost: 2}) {
		t.Errorf("a fault that came later counts %+v", got.Counters)
	}
	five := qdisc.Percent(5)
	if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: &five}); err != nil {
		t.Fatal(err)
	}
	e.count(fault.Counters{Seen: 20, Lost: 1})
	if _, err := m.Renew(t.Context(), f.ID, "uid 0", 0); err != nil {
		t.Fatal(err)
	}
	if got, _ := m.Get(t.Context(), f.ID); got.Counters != (fault.Counters{Seen: 20, Lost: 1}) {
		t.Errorf("after a change it counts %+v, want what came since", got.Counters)
	}
}

func TestQueuedIsWhatAllPlacesHold(t *testing.T) {
	e := newFakeEngine()
	m := newManager(t, e)
	s := delay(time.Second)
	s.Direction = fault.Both
	f, err := m.Apply(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for queued, want := range map[uint64]uint64{7: 14, 0: 0} {
		e.queued = queued
		if got, err := m.Get(t.Context(), f.ID); err != nil || got.Queued != want {
			t.Errorf("two places hold %d each: %d, %v", queued, got.Queued, err)
		}
	}
}

// An engine that panics while a fault is changed leaves it as its owner knows it: it ends
// when he was told, and what the kernel has instead is told as a drift.
func TestPanicInAChange(t *testing.T) {
	five := qdisc.Percent(5)
	for name, change := range map[string]func(*testing.T, *Manager, string){
		"change": func(t *testing.T, m *Manager, id string) {
			t.Helper()
			_, _ = m.Change(t.Context(), id, "uid 0", 0, qdisc.Patch{Loss: &five})
		},
		"renewal": func(t *testing.T, m *Manager, id string) {
			t.Helper()
			_, _ = m.Renew(t.Context(), id, "uid 0", time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newFakeEngine()
				m, _ := newHost(t, e, nil)
				f, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.TTL = time.Minute }))
				if err != nil {
					t.Fatal(err)
				}
				e.failSets(func(p target.Place, n qdisc.Netem) error {
					e.at[p.Key()] = n
					panic("after it was done")
				})
				func() {
					defer func() {
						if recover() == nil {
							t.Error("it did not panic")
						}
					}()
					change(t, m, f.ID)
				}()
				e.failSets(nil)
				got, err := m.Get(t.Context(), f.ID)
				if err != nil || got.Spec.Packet.Loss != f.Spec.Packet.Loss || !got.Expires.Equal(f.Expires) || (got.State == fault.Drifted) != (name == "change") {
					t.Errorf("%+v, %v, want that of %+v", got, err, f)
				}
				time.Sleep(time.Until(f.Expires) + time.Second)
				synctest.Wait()
				if len(e.inForce()) > 0 || len(m.List(t.Context())) > 0 {
					t.Errorf("after its time: in force %v", e.inForce())
				}
			})
		})
	}
}

// An engine that panics half-way leaves nothing that outlives its time: the caller's
// recovery knows nothing of what is in force.
func TestPanicIsBoundedByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, j := newFakeEngine(), newFakeJournal()
		m, _ := newHost(t, e, withJournal(e, j))
		sets := 0
		e.failSets(func(target.Place, qdisc.Netem) error {
			if sets++; sets == 2 {
				panic("the second place")
			}
			return nil
		})
		s := with(on("80"), func(s *fault.Spec) { s.Direction, s.TTL = fault.Both, time.Minute })
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it did not panic")
				}
			}()
			_, _ = m.Apply(t.Context(), s)
		}()
		if len(e.inForce()) != 1 {
			t.Fatalf("in force: %v, want the first place", e.inForce())
		}
		time.Sleep(s.TTL)
		synctest.Wait()
		if len(e.inForce()) > 0 || len(m.List(t.Context())) > 0 || len(j.open) > 0 {
			t.Errorf("after its time: in force %v, journal %v", e.inForce(), j.open)
		}
	})
}
