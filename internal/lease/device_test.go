package lease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// fakeHost has devices and a name server.
type fakeHost struct {
	mu      sync.Mutex
	names   map[string]string // host -> addresses; "!" fails
	refused error
}

func (h *fakeHost) set(name, addresses string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.names[name] = addresses
}

// protect makes the host refuse, or allow again.
func (h *fakeHost) protect(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refused = err
}

func (h *fakeHost) lookup(_ context.Context, name string) ([]netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text, ok := h.names[name]
	if !ok || text == "!" {
		return nil, errors.New("no such host")
	}
	var all []netip.Addr
	for a := range strings.FieldsSeq(text) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all, nil
}

func (h *fakeHost) guard(context.Context, fault.Spec, []target.Place) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused
}

// resolve knows v0, v1 and lo of the namespace blue, the target pg on v0, and the
// wire's devices.
func (h *fakeHost) resolve(ctx context.Context, s fault.Spec) (target.Target, error) {
	if s.Selector == nil {
		m := target.Match{Include: []target.Flow{{Protocol: 6, DestinationPorts: target.Port(5432)}}}
		p := target.Place{Namespace: "blue", Device: "v0", Index: 10, Cookie: 7, Hook: target.Egress, Owned: true, Match: m}
		q := target.Place{Namespace: "blue", Device: "v1", Index: 11, Cookie: 7, Hook: target.Egress, Owned: true, Match: m.Reverse()}
		return target.Target{Name: s.Target, To: p, From: q}, nil
	}
	index := map[string]int{"lo": 1, "v0": 10, "v1": 11}[s.Selector.Device]
	if index == 0 {
		return target.Target{}, &qdisc.FieldError{Field: "dev", Value: s.Selector.Device, Want: "lo, v0, v1"}
	}
	m, err := s.Selector.Match(ctx, h.lookup)
	if err != nil {
		return target.Target{}, err
	}
	p := target.Place{Namespace: s.Selector.Namespace, Device: s.Selector.Device, Index: index, Cookie: 7, Hook: target.Egress, Match: m}
	q := p
	q.Match = m.Reverse()
	if index != 1 {
		q.Hook = target.Ingress
	}
	return target.Target{Name: s.Selector.String(), To: p, From: q}, nil
}

// newHost returns a manager on devices. change may alter its configuration.
func newHost(t *testing.T, e *fakeEngine, change func(*Config)) (*Manager, *fakeHost) {
	t.Helper()
	h := &fakeHost{names: map[string]string{}}
	cfg := Config{
		Engines: map[fault.Engine]Engine{fault.EBPF: e},
		Choose:  func(context.Context, []target.Place) (fault.Engine, string, error) { return fault.EBPF, "test", nil },
		Resolve: h.resolve, Lookup: h.lookup, Protect: h.guard, Log: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&cfg)
	}
	m := New(cfg)
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
		if left := e.inForce(); len(left) > 0 {
			t.Errorf("left in the kernel: %v", left)
		}
	})
	return m, h
}

// on is a fault of 20 % loss on TCP packets of v0 to a port or a range of them.
func on(ports string) fault.Spec {
	s := fault.Spec{Owner: "uid 0", Selector: &target.Selector{Namespace: "blue", Device: "v0", Protocol: 6}, Packet: &qdisc.Netem{Loss: 20}}
	if ports != "" {
		p, err := target.ParsePorts(ports)
		if err != nil {
			panic(err)
		}
		s.Selector.PeerPorts = []target.Ports{p}
	}
	return s
}

func with(s fault.Spec, change func(*fault.Spec)) fault.Spec {
	sel := *s.Selector
	s.Selector = &sel
	change(&s)
	return s
}

// matches are what is in force, as "MATCH: IMPAIRMENT".
func matches(e *fakeEngine) map[string]bool {
	all := map[string]bool{}
	for key, n := range e.inForce() {
		all[key[strings.LastIndex(key, "|")+1:]+": "+n.String()] = true
	}
	return all
}

func TestFlowsOfOneDevice(t *testing.T) {
	held := on("80")
	for name, tt := range map[string]struct {
		spec fault.Spec
		want string // in the conflict; empty when both stand
	}{
		"the same flow, the same thing":        {on("80"), "loss is set by fault"},
		"the same flow, something else":        {with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: 1e6} }), ""},
		"the same flow, another owner":         {with(on("80"), func(s *fault.Spec) { s.Owner = "uid 7" }), "v0@blue tcp port 80 is held by uid 0 with fault"},
		"another flow":                         {on("81"), ""},
		"another flow, another owner":          {with(on("81"), func(s *fault.Spec) { s.Owner = "uid 7" }), ""},
		"a range with it in":                   {on("80-90"), "tcp to port 80-90 overlaps tcp to port 80, which is held by uid 0 with fault"},
		"a range, another owner":               {with(on("80-90"), func(s *fault.Spec) { s.Owner = "uid 7" }), "tcp to port 80-90 overlaps tcp to port 80"},
		"the whole device":                     {with(on(""), func(s *fault.Spec) { s.Selector.Protocol = 0 }), "all packets overlaps tcp to port 80"},
		"the whole device without it":          {with(on(""), func(s *fault.Spec) { s.Selector.Protocol, s.Selector.ExcludePorts = 0, []target.Ports{target.Port(80)} }), ""},
		"an address and the port":              {with(on("80"), func(s *fault.Spec) { s.Selector.Peers = []string{"192.0.2.1"} }), "overlaps"},
		"another protocol":                     {with(on("80"), func(s *fault.Spec) { s.Selector.Protocol = 17 }), ""},
		"another device":                       {with(on("80"), func(s *fault.Spec) { s.Selector.Device = "v1" }), ""},
		"the other hook":                       {with(on("80"), func(s *fault.Spec) { s.Direction = fault.From }), ""},
		"both directions, something else":      {with(on("80"), func(s *fault.Spec) { s.Direction, s.Packet = fault.Both, &qdisc.Netem{Delay: 1e6} }), ""},
		"a target on the same device":          {fault.Spec{Target: "pg", Owner: "uid 0", Packet: &qdisc.Netem{Loss: 5}}, ""},
		"the same namespace by another name":   {with(on("80-90"), func(s *fault.Spec) { s.Selector.Namespace = "azure" }), "overlaps"},
		"the same flow, by another name of it": {with(on("80"), func(s *fault.Spec) { s.Selector.PeerPorts = append(s.Selector.PeerPorts, target.Port(80)) }), "loss is set by fault"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newFakeEngine()
			m, _ := newHost(t, e, nil)
			first, err := m.Apply(t.Context(), held)
			if err != nil {
				t.Fatal(err)
			}
			before := e.inForce()
			e.done()
			second, err := m.Apply(t.Context(), tt.spec)
			if tt.want != "" {
				if !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), first.ID) ||
					!strings.Contains(err.Error(), "applied 0s ago, ends in 10m0s") {
					t.Errorf("%v, want a conflict that says %q, and the holder's id, age and end", err, tt.want)
				}
				if ops := e.done(); len(ops) > 0 || !cmp.Equal(before, e.inForce()) {
					t.Errorf("a refused fault touched the kernel: %v", ops)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Clear(t.Context(), fault.Selector{ID: second.ID}, "uid 0"); err != nil && second.Spec.Owner == "uid 0" {
				t.Fatal(err)
			}
			if second.Spec.Owner != "uid 0" {
				return
			}
			if diff := cmp.Diff(before, e.inForce()); diff != "" {
				t.Errorf("after the second was cleared (-want +got):\n%s", diff)
			}
		})
	}
}

// A lab's target and a device that are the same meet like two devices.
func TestTargetAndDeviceMeet(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), nil)
	if _, err := m.Apply(t.Context(), fault.Spec{Target: "pg", Owner: "uid 0", Packet: &qdisc.Netem{Loss: 5}}); err != nil {
		t.Fatal(err)
	}
	_, err := m.Apply(t.Context(), on("5432-5433"))
	if !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), "exclude the one's flow from the other") {
		t.Errorf("%v, want a conflict", err)
	}
}

func TestFailedSecondPlaceUndoesTheFirst(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	broken := errors.New("broken")
	e.failSets(func(p target.Place, _ qdisc.Netem) error {
		if p.Hook == target.Ingress {
			return broken
		}
		return nil
	})
	both := with(on("80"), func(s *fault.Spec) { s.Direction = fault.Both })
	if _, err := m.Apply(t.Context(), both); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if got := e.inForce(); len(got) > 0 {
		t.Errorf("in force: %v", got)
	}
	if got := m.List(t.Context()); len(got) > 0 {
		t.Errorf("listed: %v", got)
	}
	e.failSets(nil)
	if _, err := m.Apply(t.Context(), both); err != nil {
		t.Errorf("once more: %v", err)
	}
}

func TestEachPlaceHasASeed(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	f, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.Direction, s.Packet.Seed = fault.Both, 42 }))
	if err != nil {
		t.Fatal(err)
	}
	held, err := m.Held(t.Context(), f.ID)
	if err != nil || len(held.Places) != 2 || held.Fault.Spec.Packet.Seed != 42 || held.Fault.State != fault.Active {
		t.Fatalf("%+v, %v", held, err)
	}
	for i, want := range []uint64{42, fault.Seed(42, 1)} {
		p := held.Places[i]
		if got := e.inForce()[p.Place.Key()].Seed; got != want || p.Netem.Seed != want {
			t.Errorf("place %d draws with %d, is said to with %d, want %d", i, got, p.Netem.Seed, want)
		}
	}
}

func TestLoopback(t *testing.T) {
	lo := func(ports string, d fault.Direction) fault.Spec {
		return with(on(ports), func(s *fault.Spec) { s.Selector.Device, s.Direction = "lo", d })
	}
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	for _, d := range []fault.Direction{fault.To, fault.From} {
		if _, err := m.Apply(t.Context(), lo("80", d)); err != nil {
			t.Errorf("%s: %v", d, err)
		}
	}
	want := map[string]bool{"+6,invalid Prefix,invalid Prefix,any,80 - false: loss 20%": true, "+6,invalid Prefix,invalid Prefix,80,any - false: loss 20%": true}
	if diff := cmp.Diff(want, matches(e)); diff != "" {
		t.Errorf("in force (-want +got):\n%s", diff)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); err != nil {
		t.Fatal(err)
	}
	whole := with(lo("", fault.From), func(s *fault.Spec) { s.Selector.Protocol = 0 })
	if _, err := m.Apply(t.Context(), whole); !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "every packet passes egress") {
		t.Errorf("from all of lo: %v", err)
	}
	whole.Direction = fault.Both
	if f, err := m.Apply(t.Context(), whole); err != nil || len(f.Placement) != 1 {
		t.Errorf("both on all of lo: %v, %v, want one place", f.Placement, err)
	}
}

func TestProtectedFaultTouchesNothing(t *testing.T) {
	e := newFakeEngine()
	m, h := newHost(t, e, nil)
	h.protect(fmt.Errorf("apply: %w: ssh", fault.ErrProtected))
	if _, err := m.Apply(t.Context(), on("22")); !errors.Is(err, fault.ErrProtected) {
		t.Errorf("%v, want protected", err)
	}
	if ops := e.done(); len(ops) > 0 {
		t.Errorf("the kernel was touched: %v", ops)
	}
}

func TestClearByDevice(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), nil)
	for _, s := range []fault.Spec{
		on("80"), on("81"), with(on("80"), func(s *fault.Spec) { s.Selector.Device = "v1" }),
		{Target: "pg", Owner: "uid 0", Packet: &qdisc.Netem{Loss: 5}},
	} {
		if _, err := m.Apply(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	cleared, err := m.Clear(t.Context(), fault.Selector{Device: "v0@blue"}, "uid 0")
	if err != nil || len(cleared) != 3 {
		t.Errorf("cleared %d, %v, want both flows and the target's", len(cleared), err)
	}
	if left := m.List(t.Context()); len(left) != 1 || left[0].Spec.Selector.Device != "v1" {
		t.Errorf("left: %+v, want that of v1", left)
	}
	if cleared, err := m.Clear(t.Context(), fault.Selector{Device: "v0"}, "uid 0"); err != nil || len(cleared) != 0 {
		t.Errorf("v0 of the agent's own namespace: %v, %v", cleared, err)
	}
	for cookie, want := range map[uint64]int{8: 0, 7: 1} { // another namespace's device of that number, and v1 under another name
		if cleared, err := m.Clear(t.Context(), fault.Selector{Device: "w1@blue", Cookie: cookie, Index: 11}, "uid 0"); err != nil || len(cleared) > want {
			t.Errorf("renamed, cookie %d: %v, %v, want %d", cookie, cleared, err, want)
		}
	}
	if left := m.List(t.Context()); len(left) != 0 {
		t.Errorf("left: %+v", left)
	}
}

func TestUnknownDevice(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), nil)
	s := with(on("80"), func(s *fault.Spec) { s.Selector.Device = "eth7" })
	if _, err := m.Apply(t.Context(), s); !errors.Is(err, qdisc.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if len(m.lanes.all) != 0 {
		t.Errorf("lanes left: %v", m.lanes.all)
	}
}

// notingEngine says something of each place.
type notingEngine struct{ *fakeEngine }

func (notingEngine) Notes(p target.Place) []string { return []string{"before " + p.Match.String()} }

func TestNotesOfThePlaceAreWarnings(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, func(c *Config) { c.Engines[fault.EBPF] = notingEngine{e} })
	f, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.Direction = fault.Both }))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"before tcp to port 80", "before tcp from port 80"}, f.Warnings); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestMaxFaults(t *testing.T) {
	e := newFakeEngine()
	m, _ := newHost(t, e, nil)
	for i := range MaxFaults {
		if _, err := m.Apply(t.Context(), on(fmt.Sprint(i+1))); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Apply(t.Context(), on("9999")); err == nil || !strings.Contains(err.Error(), "256 faults are held, which is the most") {
		t.Errorf("one more: %v", err)
	}
	if n := len(e.inForce()); n != MaxFaults {
		t.Errorf("%d are in force", n)
	}
}
