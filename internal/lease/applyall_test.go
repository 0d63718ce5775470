package lease

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// portsFrom are faults at as many flows of v0.
func portsFrom(first, n int) []fault.Spec {
	specs := make([]fault.Spec, n)
	for i := range specs {
		specs[i] = on(fmt.Sprint(first + i))
	}
	return specs
}

func TestApplyAll(t *testing.T) {
	e, j := newFakeEngine(), newFakeJournal()
	m, _ := newHost(t, e, withJournal(e, j))
	begin := m.events.last
	specs := portsFrom(100, 3)
	specs = append(specs, with(on("100"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: time.Second} }))
	e.count(fault.Counters{Seen: 7})
	faults, err := m.ApplyAll(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i, f := range faults {
		ids = append(ids, f.ID)
		if f.State != fault.Active || f.Spec.TargetName() != specs[i].TargetName() || !f.Spec.Packet.IsZero() && *f.Spec.Packet != *specs[i].Packet || f.Counters.Seen != 0 {
			t.Errorf("fault %d: %+v", i, f)
		}
	}
	if slices.Contains(ids, "") || len(slices.Compact(slices.Sorted(slices.Values(ids)))) != 4 {
		t.Errorf("ids %v", ids)
	}
	want := []string{"intend 1", "intend 2", "intend 3", "intend 4", "hold 1", "hold 2", "hold 3", "hold 4"}
	if diff := cmp.Diff(want, j.records()); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	// The flow of two faults is set once, to both.
	if ops := e.done(); len(ops) != 3 {
		t.Errorf("done: %q", ops)
	}
	both := "+6,invalid Prefix,invalid Prefix,any,100 - false: loss 20% delay 1s"
	if got := matches(e); len(got) != 3 || !got[both] {
		t.Errorf("in force: %v", got)
	}
	if n := m.events.last - begin; n != 4 {
		t.Errorf("%d events", n)
	}
	if cleared, err := m.Clear(t.Context(), fault.Selector{All: true}, "uid 0"); err != nil || len(cleared) != 4 {
		t.Errorf("%d cleared, %v", len(cleared), err)
	}
}

// refusedAll is an ApplyAll that must fail and leave everything as it was.
func refusedAll(t *testing.T, m *Manager, e *fakeEngine, specs []fault.Spec, want error, words string) {
	t.Helper()
	before, held := matches(e), m.List(t.Context())
	faults, err := m.ApplyAll(t.Context(), specs)
	if faults != nil || want != nil && !errors.Is(err, want) || err == nil || !strings.Contains(err.Error(), words) {
		t.Errorf("%d faults, %v; want %q", len(faults), err, words)
	}
	if diff := cmp.Diff(before, matches(e)); diff != "" {
		t.Errorf("%s: in force (-before +after):\n%s", words, diff)
	}
	if now := m.List(t.Context()); len(now) != len(held) {
		t.Errorf("%s: %d faults are held, before %d", words, len(now), len(held))
	}
}

func TestApplyAllOrNone(t *testing.T) {
	e, j := newFakeEngine(), newFakeJournal()
	m, h := newHost(t, e, func(c *Config) {
		withJournal(e, j)(c)
		c.Limits = Limits{Faults: 9, PerOwner: 6}
	})
	other := with(on("500"), func(s *fault.Spec) { s.Owner = "uid 1" })
	if _, err := m.Apply(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	change := func(i int, f func(*fault.Spec)) []fault.Spec {
		specs := portsFrom(100, 5)
		specs[i] = with(specs[i], f)
		return specs
	}
	refusedAll(t, m, e, nil, qdisc.ErrInvalid, "faults \"0\"")
	refusedAll(t, m, e, change(3, func(s *fault.Spec) { s.Packet = &qdisc.Netem{Loss: 200} }), qdisc.ErrInvalid, "faults[3].loss")
	refusedAll(t, m, e, change(2, func(s *fault.Spec) { s.Wait = time.Second }), qdisc.ErrInvalid, "faults[2].wait")
	refusedAll(t, m, e, change(2, func(s *fault.Spec) { s.Selector.Device = "v9" }), qdisc.ErrInvalid, "faults[2].dev")
	refusedAll(t, m, e, change(4, func(s *fault.Spec) { s.Selector.PeerPorts = []target.Ports{target.Port(500)} }), fault.ErrConflict, "faults[4]: apply: conflict")
	refusedAll(t, m, e, change(4, func(s *fault.Spec) { s.Selector.PeerPorts = []target.Ports{target.Port(100)} }), fault.ErrConflict, "loss is set by fault")
	refusedAll(t, m, e, portsFrom(100, 7), fault.ErrBusy, "faults_per_owner")
	refusedAll(t, m, e, append(portsFrom(100, 5), with(on("9"), func(s *fault.Spec) { s.Owner = "uid 2" }), with(on("8"), func(s *fault.Spec) { s.Owner = "uid 2" }),
		with(on("7"), func(s *fault.Spec) { s.Owner = "uid 2" }), with(on("6"), func(s *fault.Spec) { s.Owner = "uid 2" })), fault.ErrBusy, "limits.faults)")
	h.protect(fault.ErrProtected)
	refusedAll(t, m, e, portsFrom(100, 2), fault.ErrProtected, "faults[0]: ")
	h.protect(nil)
	if told := j.records(); len(told) != 2 { // those of the other's
		t.Errorf("before the kernel was changed: %q", told)
	}

	broken := errors.New("broken")
	e.failSets(func(p target.Place, _ qdisc.Netem) error {
		if strings.Contains(p.Match.String(), "port 103") {
			return broken
		}
		return nil
	})
	refusedAll(t, m, e, portsFrom(100, 5), broken, "faults[3]: broken")
	e.failSets(nil)
	for _, step := range []string{"intend", "hold"} {
		j.failing(step, broken)
		refusedAll(t, m, e, portsFrom(100, 5), broken, "apply: broken")
		j.failing(step, nil)
	}
	if n := len(j.open); n != 1 {
		t.Errorf("%d faults are open in the journal", n)
	}
	if faults, err := m.ApplyAll(t.Context(), portsFrom(100, 5)); err != nil || len(faults) != 5 {
		t.Errorf("after all that: %d, %v", len(faults), err)
	}
}

// What fails at one device undoes what was done at others, and an engine that panics leaves
// what is known, and ends.
func TestApplyAllOnSeveralDevices(t *testing.T) {
	e, j := newFakeEngine(), newFakeJournal()
	m, _ := newHost(t, e, withJournal(e, j))
	several := func() []fault.Spec {
		var specs []fault.Spec
		for i := range 30 {
			device := []string{"v0", "v1", "lo"}[i%3]
			specs = append(specs, with(on(fmt.Sprint(100+i)), func(s *fault.Spec) { s.Selector.Device, s.RequestID = device, fmt.Sprint("r", i) }))
		}
		return specs
	}
	broken := errors.New("broken")
	fail := func(port string, f func() error) {
		e.failSets(func(p target.Place, _ qdisc.Netem) error {
			if strings.HasSuffix(p.Match.String(), port) {
				return f()
			}
			return nil
		})
	}
	fail("port 117", func() error { return broken })
	refusedAll(t, m, e, several(), broken, "faults[17]: broken")
	if n := len(j.open); n != 0 {
		t.Errorf("%d are open in the journal", n)
	}
	fail("port 117", func() error { panic("no such thing") })
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = m.ApplyAll(t.Context(), several())
	}()
	e.failSets(nil)
	if held := m.List(t.Context()); len(held) != 30 {
		t.Errorf("%d faults stand", len(held))
	}
	refusedAll(t, m, e, several(), nil, "and the agent failed before it was whole")
	if cleared, err := m.Clear(t.Context(), fault.Selector{All: true}, "uid 0"); err != nil || len(cleared) != 30 {
		t.Errorf("%d cleared, %v", len(cleared), err)
	}
}

func TestApplyAllHonoursRequestIDs(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	named := func() []fault.Spec {
		specs := portsFrom(100, 4)
		for i := range specs {
			specs[i].RequestID = fmt.Sprint("r", i)
		}
		return specs
	}
	second := named()[2]
	f, err := m.Apply(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	answers := make([][]fault.Fault, 8)
	for i := range answers { // in different orders
		calls.Go(func() {
			specs := named()
			if i%2 == 1 {
				slices.Reverse(specs)
			}
			all, err := m.ApplyAll(t.Context(), specs)
			if err != nil {
				t.Error(err)
				return
			}
			if i%2 == 1 {
				slices.Reverse(all)
			}
			answers[i] = all
		})
	}
	calls.Wait()
	for i, all := range answers {
		for k, got := range all {
			if got.ID != answers[0][k].ID || k == 2 && got.ID != f.ID {
				t.Errorf("call %d, fault %d: %s", i, k, got.ID)
			}
		}
	}
	if held := m.List(t.Context()); len(held) != 4 {
		t.Errorf("%d faults", len(held))
	}
	twice := named()
	twice[3].RequestID = "r1"
	refusedAll(t, m, e, twice, qdisc.ErrInvalid, `faults[3].request_id "r1": want an id of its own, not that of faults[1]`)
	another := named()
	another[1] = with(another[1], func(s *fault.Spec) { s.Packet = &qdisc.Netem{Loss: 7} })
	refusedAll(t, m, e, another, qdisc.ErrInvalid, "faults[1].request_id")
	// What was refused is not taken.
	free := portsFrom(200, 2)
	free[0].RequestID, free[1].RequestID, free[1].Packet = "n0", "n1", &qdisc.Netem{Loss: 200}
	refusedAll(t, m, e, free, qdisc.ErrInvalid, "faults[1].loss")
	free[1].Packet = &qdisc.Netem{Loss: 20}
	if _, err := m.ApplyAll(t.Context(), free); err != nil {
		t.Error(err)
	}
}
