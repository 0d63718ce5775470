package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// choosingEngine is a fakeEngine that can choose packets, too.
type choosingEngine struct {
	*fakeEngine
	rulesMu  sync.Mutex
	rules    map[string]time.Time // "MATCH: RULE" -> deadline
	logs     map[string]content.Log
	failRule func(p target.Place) error
	away     bool
	// reads counts the records that were given to followers, more is closed with each new.
	reads int
	more  chan struct{}
}

func newChoosingEngine() *choosingEngine {
	return &choosingEngine{fakeEngine: newFakeEngine(), rules: map[string]time.Time{}, logs: map[string]content.Log{}}
}

func ruleKey(p target.Place, r content.Rule) string {
	return fmt.Sprintf("%s %s %s: %s", p.Device, p.Hook, p.Match, r)
}

func (e *choosingEngine) SetContent(_ context.Context, p target.Place, r content.Rule, deadline time.Time) error {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	if e.failRule != nil {
		if err := e.failRule(p); err != nil {
			return err
		}
	}
	key := ruleKey(p, r)
	if _, ok := e.rules[key]; !ok {
		e.logs[key] = content.Log{}
	}
	e.rules[key] = deadline
	return nil
}

func (e *choosingEngine) ReadContent(_ context.Context, p target.Place, r content.Rule) (fault.Status, bool, error) {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	if e.away {
		return fault.Status{}, false, fs.ErrNotExist
	}
	key := ruleKey(p, r)
	_, ok := e.rules[key]
	n := e.logs[key].Chosen
	st := fault.Status{Counters: fault.Counters{Seen: 10 * n, Lost: n}}
	if ok && r.Hold > 0 {
		st.Queued = n
	}
	return st, ok, nil
}

func (e *choosingEngine) ContentLog(_ context.Context, p target.Place, r content.Rule) (content.Log, error) {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	log := e.logs[ruleKey(p, r)]
	log.Records = slices.Clone(log.Records)
	return log, nil
}

// ContentSince keeps the last content.MaxRecords, which Chosen counts with all before.
func (e *choosingEngine) ContentSince(
	_ context.Context, p target.Place, r content.Rule, from content.Cursor,
) (content.Log, content.Cursor, <-chan struct{}, error) {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	log := e.logs[ruleKey(p, r)]
	fresh := log.Chosen - log.Missed - from.Read
	log.Skipped = fresh - min(fresh, uint64(len(log.Records)))
	log.Records = slices.Clone(log.Records[len(log.Records)-int(fresh-log.Skipped):])
	e.reads += len(log.Records)
	if e.more == nil {
		e.more = make(chan struct{})
	}
	return log, content.Cursor{Log: 1, Read: from.Read + fresh}, e.more, nil
}

func (e *choosingEngine) ClearContent(_ context.Context, p target.Place, r content.Rule) error {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	delete(e.rules, ruleKey(p, r))
	return nil
}

// choose has a rule at a place choose a packet at a time, which names it.
func (e *choosingEngine) choose(key string, at int64) {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	if _, ok := e.rules[key]; !ok {
		panic("no rule " + key + " in force, there are " + fmt.Sprint(slices.Collect(maps.Keys(e.rules))))
	}
	log := e.logs[key]
	log.Chosen++
	log.Records = append(log.Records, content.Record{Time: at})
	log.Records = log.Records[max(0, len(log.Records)-content.MaxRecords):]
	e.logs[key] = log
	if e.more != nil {
		close(e.more)
		e.more = nil
	}
}

// meddleRules is somebody else's change.
func (e *choosingEngine) meddleRules(f func()) {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	f()
}

func (e *choosingEngine) ruling() []string {
	e.rulesMu.Lock()
	defer e.rulesMu.Unlock()
	return slices.Sorted(maps.Keys(e.rules))
}

// newChoosingHost is newHost with an engine that can choose.
func newChoosingHost(t *testing.T, change func(*Config)) (*Manager, *fakeHost, *choosingEngine) {
	t.Helper()
	e := newChoosingEngine()
	t.Cleanup(func() {
		if left := e.ruling(); len(left) > 0 {
			t.Errorf("rules are left: %v", left)
		}
	})
	m, h := newHost(t, e.fakeEngine, func(c *Config) {
		c.Engines[fault.EBPF] = e
		if change != nil {
			change(c)
		}
	})
	return m, h, e
}

var dropSYN = content.Rule{Kind: content.SYN, Count: 1}

// dropOn is a rule on TCP packets of v0 to a port, or all.
func dropOn(ports string, r content.Rule) fault.Spec {
	s := on(ports)
	s.Packet, s.Content = nil, &r
	return s
}

func times(log content.Log) []int64 {
	var ts []int64
	for _, r := range log.Records {
		ts = append(ts, r.Time)
	}
	return ts
}

func TestRulesStandBesideEverythingButThemselves(t *testing.T) {
	other := func(s fault.Spec) fault.Spec { s.Owner = "uid 7"; return s }
	for name, tt := range map[string]struct {
		spec fault.Spec
		want string // in the conflict; empty when both stand
	}{
		"the same rule":                    {dropOn("80", dropSYN), "'drop syn, 1 packet' is done by fault"},
		"the same rule of another owner":   {other(dropOn("80", dropSYN)), "v0@blue tcp port 80 is held by uid 0 with fault"},
		"another count":                    {dropOn("80", content.Rule{Kind: content.SYN, Count: 2}), ""},
		"another rule of another owner":    {other(dropOn("80", content.Rule{Kind: content.FIN})), ""},
		"the same rule on a flow around":   {other(dropOn("", dropSYN)), ""},
		"the same rule on an overlapping":  {dropOn("80-90", dropSYN), ""},
		"the same rule, other hook":        {with(dropOn("80", dropSYN), func(s *fault.Spec) { s.Direction = fault.From }), ""},
		"the same rule in both directions": {with(dropOn("80", dropSYN), func(s *fault.Spec) { s.Direction = fault.Both }), "is done by fault"},
		"loss on the same flow":            {on("80"), ""},
		"another owner's loss":             {other(on("80")), ""},
		"loss on a flow around":            {on(""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, _, e := newChoosingHost(t, nil)
			first, err := m.Apply(t.Context(), dropOn("80", dropSYN))
			if err != nil {
				t.Fatal(err)
			}
			if first.Engine != fault.EBPF || first.EngineReason != contentReason {
				t.Errorf("engine %s: %s", first.Engine, first.EngineReason)
			}
			before := e.ruling()
			_, err = m.Apply(t.Context(), tt.spec)
			switch {
			case tt.want == "" && err != nil:
				t.Error(err)
			case tt.want == "":
				if _, err := m.Clear(t.Context(), fault.Selector{ID: first.ID}, "uid 0"); err != nil {
					t.Fatal(err)
				}
				if n := len(m.List(t.Context())); n != 1 || len(e.ruling())+len(e.inForce()) == 0 {
					t.Errorf("%d are held, in force are %v and %v", n, e.ruling(), e.inForce())
				}
			case !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), first.ID) ||
				!strings.Contains(err.Error(), "applied 0s ago, ends in 10m0s") || !strings.Contains(err.Error(), "see 'netemctl") && !strings.Contains(err.Error(), "'netemctl packets"):
				t.Errorf("%v, want a conflict that says %q, and the holder's id, age and end", err, tt.want)
			case !slices.Equal(before, e.ruling()):
				t.Errorf("a refused fault touched the kernel: %v", e.ruling())
			}
		})
	}
}

// Where netem carries the impairments of a flow, a rule on it still runs on ebpf.
func TestRuleRunsOnEBPF(t *testing.T) {
	kernel := newFakeEngine()
	m, _, e := newChoosingHost(t, func(c *Config) {
		c.Engines[fault.Netem] = kernel
		c.Choose = func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.Netem, "test", nil }
	})
	for _, s := range []fault.Spec{dropOn("80", dropSYN), on("80"), dropOn("80", content.Rule{Kind: content.FIN})} {
		if _, err := m.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if len(kernel.inForce()) != 1 || len(e.ruling()) != 2 {
		t.Errorf("netem has %v, ebpf %v", kernel.inForce(), e.ruling())
	}
	s := dropOn("80", content.Rule{Kind: content.RST})
	s.Engine = fault.Netem
	if _, err := m.Apply(t.Context(), s); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "only the ebpf engine") {
		t.Errorf("on netem: %v, want unsupported", err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); err != nil {
		t.Fatal(err)
	}
	if len(kernel.inForce()) != 0 {
		t.Errorf("left: %v", kernel.inForce())
	}
}

func TestNoEngineThatChooses(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	if _, err := m.Apply(t.Context(), dropOn("80", dropSYN)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want unsupported", err)
	}
	delete(m.cfg.Engines, fault.EBPF)
	if _, err := m.Apply(t.Context(), dropOn("80", dropSYN)); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("without the engine: %v, want unsupported", err)
	}
}

func TestRuleEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, e := newChoosingHost(t, nil)
		events := watch(t, m)
		s := dropOn("80", content.Rule{Kind: content.SYN})
		s.TTL = 5 * time.Second
		f, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		key := "v0 egress tcp to port 80: drop syn"
		e.choose(key, 1)
		time.Sleep(3 * time.Second)
		if f, err = m.Renew(t.Context(), f.ID, "uid 0", 0); err != nil {
			t.Fatal(err)
		}
		if !e.rules[key].Equal(f.Expires) {
			t.Errorf("the engine's deadline is %v, want %v", e.rules[key], f.Expires)
		}
		e.choose(key, 2)
		if f, err = m.Get(t.Context(), f.ID); err != nil || f.Counters.Lost != 2 || f.Counters.Seen != 20 {
			t.Errorf("after a renewal: %+v, %v, want all counted", f.Counters, err)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		synctest.Wait()
		if len(e.ruling()) != 0 || len(m.List(t.Context())) != 0 {
			t.Errorf("after its time: %v", e.ruling())
		}
		for _, want := range []string{"applied", "renewed", "expired"} {
			if got := <-events; got != want {
				t.Errorf("event %s, want %s", got, want)
			}
		}
		log, live, err := m.Packets(t.Context(), f.ID)
		if err != nil || live || !slices.Equal(times(log), []int64{1, 2}) || log.Chosen != 2 {
			t.Errorf("what it did: %+v, live %t, %v", log, live, err)
		}
		time.Sleep(endedTime + time.Second)
		if _, _, err := m.Packets(t.Context(), f.ID); !errors.Is(err, ErrUnknownFault) {
			t.Errorf("much later: %v, want unknown", err)
		}
	})
}

func TestRuleIsLookedAt(t *testing.T) {
	m, _, e := newChoosingHost(t, nil)
	f, err := m.Apply(t.Context(), dropOn("80", dropSYN))
	if err != nil {
		t.Fatal(err)
	}
	state := func() fault.State {
		got, err := m.Get(t.Context(), f.ID)
		if err != nil {
			t.Fatal(err)
		}
		return got.State
	}
	if got := state(); got != fault.Active {
		t.Errorf("%s, want active", got)
	}
	e.meddleRules(func() { clear(e.rules) })
	if got := state(); got != fault.Drifted {
		t.Errorf("taken out of force: %s, want drifted", got)
	}
	e.meddleRules(func() { e.away = true })
	if got := state(); got != fault.Lost {
		t.Errorf("place gone: %s, want lost", got)
	}
}

func TestRuleDoesNotChange(t *testing.T) {
	m, _, _ := newChoosingHost(t, nil)
	f, err := m.Apply(t.Context(), dropOn("80", dropSYN))
	if err != nil {
		t.Fatal(err)
	}
	five := qdisc.Percent(5)
	if _, err := m.Change(t.Context(), f.ID, "uid 0", 0, qdisc.Patch{Loss: &five}); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "clear it and make another") {
		t.Errorf("%v, want invalid, and what to do", err)
	}
	if _, err := m.Held(t.Context(), f.ID); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("to be verified: %v, want unsupported", err)
	}
}

func TestRuleInBothDirections(t *testing.T) {
	m, _, e := newChoosingHost(t, nil)
	both := with(dropOn("80", dropSYN), func(s *fault.Spec) { s.Direction = fault.Both })
	broken := errors.New("broken")
	e.meddleRules(func() {
		e.failRule = func(p target.Place) error {
			if p.Hook == target.Ingress {
				return broken
			}
			return nil
		}
	})
	if _, err := m.Apply(t.Context(), both); !errors.Is(err, broken) || len(e.ruling()) > 0 || len(m.List(t.Context())) > 0 {
		t.Errorf("%v, in force %v", err, e.ruling())
	}
	e.meddleRules(func() { e.failRule = nil })
	f, err := m.Apply(t.Context(), both)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"each direction counts by itself, up to 1"}, f.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	for i, at := range []int64{5, 3, 4} {
		e.choose(e.ruling()[i%2], at)
	}
	log, live, err := m.Packets(t.Context(), f.ID)
	if err != nil || !live || log.Chosen != 3 || !slices.Equal(times(log), []int64{3, 4, 5}) {
		t.Errorf("%+v, live %t, %v, want the records of both in order", log, live, err)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{Device: "v0@blue"}, "uid 0"); err != nil {
		t.Fatal(err)
	}
	if log, live, err := m.Packets(t.Context(), f.ID); err != nil || live || log.Chosen != 3 {
		t.Errorf("once cleared: %+v, live %t, %v", log, live, err)
	}
}

func TestRuleFollowsItsHostName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, h, e := newChoosingHost(t, func(c *Config) { c.LookupEvery = 10 * time.Second })
		h.set("db", "10.0.0.1")
		s := toDB(qdisc.Netem{})
		s.Packet, s.Content = nil, &content.Rule{Kind: content.SYN, Count: 9}
		f, err := m.Apply(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if len(f.Warnings) != 1 || !strings.Contains(f.Warnings[0], "the count begins anew") {
			t.Errorf("warnings %q", f.Warnings)
		}
		e.choose("v0 egress to 10.0.0.1/32: drop syn, 9 packets", 1)
		h.set("db", "10.0.0.2")
		nextLookup()
		e.choose("v0 egress to 10.0.0.2/32: drop syn, 9 packets", 2)
		if got := e.ruling(); len(got) != 1 {
			t.Errorf("in force: %v", got)
		}
		if f, err = m.Get(t.Context(), f.ID); err != nil || f.Counters.Lost != 2 {
			t.Errorf("%+v, %v, want both counted", f.Counters, err)
		}
		if log, _, err := m.Packets(t.Context(), f.ID); err != nil || !slices.Equal(times(log), []int64{1, 2}) || log.Chosen != 2 {
			t.Errorf("%+v, %v, want the record from before the move, too", log, err)
		}
	})
}

func TestRuleIsProtected(t *testing.T) {
	m, h, e := newChoosingHost(t, nil)
	h.protect(fmt.Errorf("apply: %w: ssh", fault.ErrProtected))
	if _, err := m.Apply(t.Context(), dropOn("", dropSYN)); !errors.Is(err, fault.ErrProtected) || len(e.ruling()) > 0 {
		t.Errorf("%v, in force %v", err, e.ruling())
	}
	h.protect(nil)
}

// What counts segments or acts on any of them is told that a super-packet is several.
func TestRuleAndSuperPackets(t *testing.T) {
	o := &fakeOffloads{off: map[string]bool{}}
	m, _, _ := newChoosingHost(t, func(c *Config) { c.Offloads = o })
	for _, tt := range []struct {
		rule content.Rule
		want bool
	}{
		{content.Rule{Kind: content.SYN}, false}, {content.Rule{Kind: content.FIN}, false}, {content.Rule{Kind: content.Data, N: 3}, true},
		{content.Rule{Kind: content.Every, N: 2, Hold: time.Second}, true}, {content.Rule{Kind: content.Retransmit}, true},
		{content.Rule{Kind: content.Match, Expr: "tcp.len > 1"}, true},
	} {
		f, err := m.Apply(t.Context(), dropOn("80", tt.rule))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(f.Warnings, "\n")
		if got := strings.HasPrefix(text, tt.rule.Action()+" may act on up to 64 KB"); got != tt.want {
			t.Errorf("%s: warnings %q, want one: %t", tt.rule, text, tt.want)
		}
	}
	off := dropOn("81", content.Rule{Kind: content.Data, N: 3})
	off.Offload = fault.OffloadOff
	f, err := m.Apply(t.Context(), off)
	if err != nil || len(f.Warnings) > 0 || !o.state()[f.ID] {
		t.Errorf("with --offload off: %v, warnings %q, off %v", err, f.Warnings, o.state())
	}
}

func TestRuleOfARequest(t *testing.T) {
	m, _, e := newChoosingHost(t, nil)
	s := dropOn("80", dropSYN)
	s.RequestID = "r"
	first, err := m.Apply(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	again := dropOn("80", dropSYN)
	again.RequestID = "r"
	if f, err := m.Apply(t.Context(), again); err != nil || f.ID != first.ID || len(e.ruling()) != 1 {
		t.Errorf("the same again: %s, %v, want %s", f.ID, err, first.ID)
	}
	another := dropOn("80", content.Rule{Kind: content.SYN, Count: 2})
	another.RequestID = "r"
	if _, err := m.Apply(t.Context(), another); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("another under the same id: %v, want invalid", err)
	}
}

func TestPacketsOfOthers(t *testing.T) {
	m, _, _ := newChoosingHost(t, nil)
	f, err := m.Apply(t.Context(), on("80"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.Packets(t.Context(), f.ID); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "a fault of 'drop' or 'hold'") {
		t.Errorf("of a loss: %v, want invalid", err)
	}
	if _, _, err := m.Packets(t.Context(), "xyz9"); !errors.Is(err, ErrUnknownFault) {
		t.Errorf("of none: %v, want unknown", err)
	}
}

// What is kept of ended faults is bounded.
func TestEndedAreForgotten(t *testing.T) {
	m, _, e := newChoosingHost(t, nil)
	var ids []string
	for range endedRecords/content.MaxRecords + 3 {
		f, err := m.Apply(t.Context(), dropOn("80", dropSYN))
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, f.ID)
		e.meddleRules(func() {
			for key := range e.rules {
				e.logs[key] = content.Log{Chosen: content.MaxRecords, Records: make([]content.Record, content.MaxRecords)}
			}
		})
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "uid 0"); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.ended); n != endedRecords/content.MaxRecords {
		t.Errorf("%d are kept, want %d", n, endedRecords/content.MaxRecords)
	}
	if _, _, err := m.Packets(t.Context(), ids[0]); !errors.Is(err, ErrUnknownFault) {
		t.Errorf("the first: %v, want forgotten", err)
	}
	if log, _, err := m.Packets(t.Context(), ids[len(ids)-1]); err != nil || log.Chosen != content.MaxRecords {
		t.Errorf("the last: %d, %v", log.Chosen, err)
	}
}

// A cleared hold's answer says what is held still, at all its places.
func TestClearedHoldSaysWhatItHolds(t *testing.T) {
	m, _, e := newChoosingHost(t, nil)
	f, err := m.Apply(t.Context(), with(dropOn("80", content.Rule{Kind: content.Every, N: 1, Hold: time.Minute}), func(s *fault.Spec) { s.Direction = fault.Both }))
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range e.ruling() {
		for range 2 + i {
			e.choose(key, 1)
		}
	}
	ended, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, "")
	if err != nil || len(ended) != 1 || ended[0].State != fault.Cleared || ended[0].Queued != 5 {
		t.Errorf("%+v, %v, want 5 that are held", ended, err)
	}
}

// What a fault is aimed at is known as long as what it did.
func TestAimOfEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _, _ := newChoosingHost(t, nil)
		f, err := m.Apply(t.Context(), dropOn("80", dropSYN))
		if err != nil {
			t.Fatal(err)
		}
		is := func(when string) {
			t.Helper()
			got, ok := m.AimOf(f.ID)
			if !ok || got.Selector == nil || got.Selector.String() != f.Spec.Selector.String() || got.Whose() != f.Spec.Whose() || got.Owner != f.Spec.Owner {
				t.Errorf("%s: %+v, %t, want that of %+v", when, got, ok, f.Spec)
			}
		}
		is("held")
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil {
			t.Fatal(err)
		}
		is("ended")
		time.Sleep(endedTime)
		synctest.Wait()
		if got, ok := m.AimOf(f.ID); ok {
			t.Errorf("forgotten: %+v", got)
		}
	})
}
