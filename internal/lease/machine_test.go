package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// machine is a Manager in a random life: what is asked for, what others do to the kernel,
// and time. The actions are rapid's; Check is what holds after each of them.
type machine struct {
	m     *Manager
	e     *fakeEngine
	j     *fakeJournal
	host  *movingHost
	holds []*Hold
	// found and errs are the answers of those that apply in the background.
	found chan *Hold
	errs  chan error
	// touched says that others have changed the kernel, and broken that it failed, after
	// which what is to end is tried again later.
	touched, broken bool
	// did counts what was done, for a test that does nothing.
	did map[string]int
}

func newMachine() *machine {
	e, j, host := newFakeEngine(), newFakeJournal(), &movingHost{index: 10, fakeHost: &fakeHost{names: map[string]string{}}}
	e.exists = func(p target.Place) bool { return p.Device != "v0" || p.Index == 10 }
	cfg := Config{
		Engines: map[fault.Engine]Engine{fault.EBPF: e},
		Choose:  func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "test", nil },
		Resolve: host.resolve, Protect: host.guard, Log: slog.New(slog.DiscardHandler), LookEvery: 500 * time.Millisecond, Limits: Limits{Waiting: 4, Faults: 12},
	}
	withJournal(e, j)(&cfg)
	return &machine{m: New(cfg), e: e, j: j, host: host, found: make(chan *Hold, 1000), errs: make(chan error, 1000), did: map[string]int{}}
}

var owners = []string{"uid 0", "uid 1", "uid 2"}

// spec draws what is asked for.
func (a *machine) spec(t *rapid.T) fault.Spec {
	s := on(rapid.SampledFrom([]string{"80", "81", "80-90", ""}).Draw(t, "ports"))
	s.Owner = rapid.SampledFrom(owners).Draw(t, "owner")
	s.Direction = rapid.SampledFrom([]fault.Direction{fault.To, fault.From, fault.Both}).Draw(t, "direction")
	if rapid.Bool().Draw(t, "on v1") {
		s.Selector.Device = "v1"
	}
	if rapid.Bool().Draw(t, "delay") {
		s.Packet = &qdisc.Netem{Delay: 1e6}
	}
	s.TTL = time.Duration(rapid.IntRange(1, 40).Draw(t, "ttl")) * time.Second
	s.Repair = rapid.Bool().Draw(t, "repair")
	if rapid.Bool().Draw(t, "waits") {
		s.Wait = time.Duration(rapid.IntRange(1, 20).Draw(t, "wait")) * time.Second
	}
	if len(a.holds) > 0 && rapid.Bool().Draw(t, "within") {
		h := a.one(t)
		s.Within = h.ID()
		if rapid.IntRange(0, 3).Draw(t, "its owner") > 0 {
			s.Owner = h.Fault().Spec.Owner
		}
	}
	return s
}

// expected are the errors that a life meets.
func expected(err error) bool {
	for _, is := range []error{nil, fault.ErrConflict, fault.ErrBusy, errBroken, errClosed, ErrUnknownFault, fs.ErrNotExist, qdisc.ErrInvalid} {
		if errors.Is(err, is) {
			return true
		}
	}
	return false
}

func (a *machine) answered(t *rapid.T, err error) {
	if !expected(err) {
		t.Fatalf("unexpected: %v", err)
	}
}

// collect takes in what came of those that waited.
func (a *machine) collect(t *rapid.T) {
	synctest.Wait()
	for {
		select {
		case h := <-a.found:
			a.holds = append(a.holds, h)
		case err := <-a.errs:
			a.answered(t, err)
		default:
			return
		}
	}
}

func (a *machine) Apply(t *rapid.T) {
	s := a.spec(t)
	go func() {
		_, err := a.m.Apply(context.Background(), s)
		a.errs <- err
	}()
}

func (a *machine) Hold(t *rapid.T) {
	s := a.spec(t)
	go func() {
		h, err := a.m.Hold(context.Background(), s, func(error) {})
		if err == nil {
			a.found <- h
		}
		a.errs <- err
	}()
}

// one draws a hold of this life, of any age.
func (a *machine) one(t *rapid.T) *Hold {
	if len(a.holds) == 0 {
		t.Skip("no hold yet")
	}
	return a.holds[len(a.holds)-1-rapid.IntRange(0, min(len(a.holds), 6)-1).Draw(t, "hold")]
}

// valid reports whether h still has its fault.
func (a *machine) valid(h *Hold) bool {
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	f := a.m.held[h.id]
	return f != nil && f.hold == h
}

func (a *machine) Resume(t *rapid.T) {
	old := a.one(t)
	was := a.valid(old)
	h, err := a.m.Resume(context.Background(), old.ID(), old.Token(), "")
	if (err == nil) != was {
		t.Fatalf("resume of a hold that is valid %t: %v", was, err)
	}
	if err == nil {
		a.did["resumed"]++
		a.holds = append(a.holds, h)
	}
}

func (a *machine) Release(t *rapid.T) {
	h := a.one(t)
	was, gone := a.valid(h), h.Fault()
	f, err := h.Release(context.Background())
	a.answered(t, err)
	if err == nil && was && f.State != fault.Cleared {
		t.Fatalf("released: %+v", f)
	}
	if err == nil && !was && !cmp.Equal(f, gone) {
		t.Fatalf("released long after its end: %+v, want %+v", f, gone)
	}
}

func (a *machine) RenewHold(t *rapid.T) {
	h := a.one(t)
	was := a.valid(h)
	f, err := h.Renew(context.Background())
	a.answered(t, err)
	if err == nil && (!was || !f.Expires.Equal(time.Now().Add(f.Spec.TTL))) {
		t.Fatalf("a hold that is valid %t renewed %+v", was, f)
	}
}

func (a *machine) Drop(t *rapid.T) {
	h := a.one(t)
	was, grace := a.valid(h), rapid.SampledFrom([]time.Duration{0, 0, 2 * time.Second, 10 * time.Second}).Draw(t, "grace")
	h.Drop(grace)
	if was && grace == 0 {
		a.did["dropped"]++
		if _, err := a.m.Get(context.Background(), h.ID()); err == nil {
			t.Fatalf("fault %s outlived its holder", h.ID())
		}
	}
}

func (a *machine) Change(t *rapid.T) {
	all := a.m.List(context.Background())
	if len(all) == 0 {
		t.Skip("nothing is held")
	}
	f := rapid.SampledFrom(all).Draw(t, "fault")
	loss := qdisc.Percent(rapid.IntRange(0, 50).Draw(t, "loss"))
	_, err := a.m.Change(context.Background(), f.ID, rapid.SampledFrom(owners).Draw(t, "owner"), 0, qdisc.Patch{Loss: &loss})
	a.answered(t, err)
}

func (a *machine) Clear(t *rapid.T) {
	all := a.m.List(context.Background())
	if len(all) == 0 {
		t.Skip("nothing is held")
	}
	_, err := a.m.Clear(context.Background(), fault.Selector{ID: rapid.SampledFrom(all).Draw(t, "fault").ID}, rapid.SampledFrom(append(owners, "")).Draw(t, "owner"))
	a.answered(t, err)
}

// Meddle changes what is in force behind the Manager's back.
func (a *machine) Meddle(t *rapid.T) {
	keys := slices.Sorted(maps.Keys(a.e.inForce()))
	if len(keys) == 0 {
		t.Skip("nothing is in force")
	}
	key := rapid.SampledFrom(keys).Draw(t, "place")
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.e.at[key] = qdisc.Netem{Loss: 99}
	a.touched = true
}

// MoveDevice makes v0 another device, or takes it away.
func (a *machine) MoveDevice(t *rapid.T) {
	index := rapid.SampledFrom([]int{0, 10, 20, 21}).Draw(t, "index")
	a.host.mu.Lock()
	defer a.host.mu.Unlock()
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	if index == a.host.index {
		return
	}
	old := a.host.index
	a.host.index, a.touched = index, true
	maps.DeleteFunc(a.e.at, func(key string, _ qdisc.Netem) bool { return strings.HasPrefix(key, fmt.Sprintf("blue|7|%d|", old)) })
	a.e.exists = func(p target.Place) bool { return p.Device != "v0" || p.Index == index }
}

// Break has each second change of the kernel fail for a while.
func (a *machine) Break(t *rapid.T) {
	n := 0
	a.e.failSets(func(target.Place, qdisc.Netem) error {
		if n++; n%2 == 0 {
			return errBroken
		}
		return nil
	})
	a.touched, a.broken = true, true
	a.Sleep(t)
	synctest.Wait()
	a.e.failSets(nil)
}

func (a *machine) Sleep(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 60).Draw(t, "tenths")) * 100 * time.Millisecond)
}

// Check is what always holds.
func (a *machine) Check(t *rapid.T) {
	a.collect(t)
	list := a.m.List(context.Background())
	a.collect(t) // repairs may have begun
	var ids []string
	for _, f := range list {
		ids = append(ids, f.ID)
		if !a.broken && !time.Now().Before(f.Expires) {
			t.Fatalf("fault %s outlived its time by %v", f.ID, time.Since(f.Expires))
		}
		if !a.touched && f.State != fault.Active {
			t.Fatalf("fault %s is %s, and nobody has touched it", f.ID, f.State)
		}
	}
	if open := slices.Sorted(maps.Keys(a.j.open)); !cmp.Equal(open, slices.Sorted(slices.Values(ids)), cmpopts.EquateEmpty()) {
		t.Fatalf("listed %v, in the journal %v", ids, open)
	}
	a.checkKernel(t)
	a.m.mu.Lock()
	defer a.m.mu.Unlock()
	for _, w := range a.m.line {
		if w.due || a.m.inTheWay(w.h, w) == nil {
			t.Fatalf("one waits with nothing in its way, due %t", w.due)
		}
	}
	if len(a.m.line) > 0 {
		a.did["waiting"]++
	}
	for _, f := range a.m.order {
		if f.fault.Token != 0 && (f.hold == nil || f.hold.over || f.hold.token != f.fault.Token) {
			t.Fatalf("fault %s has token %d, its hold is %+v", f.fault.ID, f.fault.Token, f.hold)
		}
	}
	for i, f := range a.m.order {
		if f.within != nil {
			a.did["within"]++
			o := a.m.held[f.within.fault.ID]
			if gone := o != f.within && f.notes.ending == ""; gone || o == f.within && f.group != o.group { // what could not be cleared is left
				t.Fatalf("fault %s outlived %s, within which it was made", f.fault.ID, f.within.fault.ID)
			}
		}
		for _, o := range a.m.order[:i] {
			if sharesSlot(f, o) && f.group != o.group {
				t.Fatalf("fault %s combines with %s, and not both are of one command", f.fault.ID, o.fault.ID)
			}
		}
	}
	for _, h := range a.holds {
		if f := a.m.held[h.id]; h.over == (f != nil && f.hold == h) {
			t.Fatalf("hold %d of %s is over %t, its fault is %+v", h.token, h.id, h.over, f)
		}
	}
	if n := len(a.m.lanes.all); n > 0 {
		t.Fatalf("%d lanes are held by nobody", n)
	}
}

// checkKernel looks for what is in force of nobody's, and for what is not in force.
func (a *machine) checkKernel(t *rapid.T) {
	inForce := a.e.inForce()
	want, known := map[string]qdisc.Netem{}, map[string]bool{}
	a.m.mu.Lock()
	held := slices.Clone(a.m.order)
	for _, h := range held {
		for _, s := range slices.Concat(h.slots, h.stale) {
			known[s.key] = true
		}
	}
	a.m.mu.Unlock()
	for _, h := range held {
		for _, s := range h.slots {
			if h.fault.State == fault.Active {
				want[s.key] = union(a.m.at(s))
			}
		}
	}
	for key := range inForce {
		if !known[key] {
			t.Fatalf("in force, but nobody's: %s", key)
		}
	}
	for key, n := range want {
		if !a.broken && inForce[key] != n {
			t.Fatalf("at %s is %v, want %v", key, inForce[key], n)
		}
	}
}

// close ends the life, in which nothing may be left.
func (a *machine) close(t *rapid.T) {
	a.e.failSets(nil)
	time.Sleep(12 * time.Second) // what can be put back is, or says why not
	a.collect(t)
	for _, f := range a.m.List(context.Background()) {
		why := strings.Join(f.Warnings, " ") // one whose clear failed is not put back: it is to end
		if f.Spec.Repair && f.State != fault.Active && !strings.Contains(why, "put back") && !strings.Contains(why, "clear failed") {
			t.Errorf("fault %s is %s, and does not say why: %q", f.ID, f.State, f.Warnings)
		}
	}
	err := a.m.Close(context.Background())
	a.collect(t)
	if left := a.e.inForce(); err != nil || len(left)+len(a.j.open)+a.m.Waiting()+len(a.m.held)+len(a.m.order) > 0 {
		t.Errorf("close: %v; left in force %v, in the journal %v, waiting %d", err, left, a.j.open, a.m.Waiting())
	}
	for _, h := range a.holds {
		if _, over := told(h); !over {
			t.Errorf("the holder of %s was not told of the end", h.ID())
		}
	}
}

// A random life of faults that are held, waited for, resumed and repaired.
func TestRandomLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		did := map[string]int{}
		// Without its Deadline, which cannot be asked for in a bubble.
		rapid.Check(struct{ rapid.TB }{t}, func(rt *rapid.T) {
			a := newMachine()
			defer func() {
				a.close(rt)
				for k, n := range a.did {
					did[k] += n
				}
			}()
			rt.Repeat(rapid.StateMachineActions(a))
		})
		for _, what := range []string{"dropped", "resumed", "waiting", "within"} {
			if did[what] < 10 {
				t.Errorf("%s %d times: too few for a test", what, did[what])
			}
		}
	})
}
