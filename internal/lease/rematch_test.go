package lease

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// movingEngine is a kernel in memory that gives a fault other packets in one step.
type movingEngine struct {
	*fakeEngine
	// fail makes the n-th Rematch fail, counted from 1.
	fail, calls int
}

func (e *movingEngine) Rematch(_ context.Context, p target.Place, m target.Match) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	q := p
	q.Match = m
	if e.calls++; e.calls == e.fail {
		return errors.New("not now")
	}
	e.at[q.Key()], e.deadline[q.Key()] = e.at[p.Key()], e.deadline[p.Key()]
	delete(e.at, p.Key())
	e.ops = append(e.ops, "move "+p.Match.String()+" -> "+m.String())
	return nil
}

// Where the engine can, a fault follows its host name in one step; what another fault
// stands on, and what the engine refuses, is set anew and then cleared.
func TestHostNameMovesInOneStep(t *testing.T) {
	for name, tt := range map[string]struct {
		direction  fault.Direction
		fail       int
		twin       bool
		failSet    error
		want       []string
		toNew, all int // of the slots in force in the end
	}{
		"one place": {want: []string{"move to 10.0.0.1/32 -> to 10.0.0.2/32"}, toNew: 1, all: 1},
		"both": {direction: fault.Both, toNew: 2, all: 2, want: []string{
			"move to 10.0.0.1/32 -> to 10.0.0.2/32", "move from 10.0.0.1/32 -> from 10.0.0.2/32"}},
		"refused": {fail: 1, toNew: 1, all: 1, want: []string{"set to 10.0.0.2/32", "clear to 10.0.0.1/32"}},
		"the second refused": {direction: fault.Both, fail: 2, toNew: 2, all: 2, want: []string{
			"move to 10.0.0.1/32 -> to 10.0.0.2/32", "move to 10.0.0.2/32 -> to 10.0.0.1/32",
			"set to 10.0.0.2/32", "set from 10.0.0.2/32", "clear to 10.0.0.1/32", "clear from 10.0.0.1/32"}},
		"refused altogether": {direction: fault.Both, fail: 2, failSet: errors.New("broken"), all: 2, want: []string{
			"move to 10.0.0.1/32 -> to 10.0.0.2/32", "move to 10.0.0.2/32 -> to 10.0.0.1/32",
			"clear to 10.0.0.2/32", "clear from 10.0.0.2/32"}},
		"twins": {twin: true, toNew: 1, all: 1, want: []string{
			"set to 10.0.0.2/32", "set to 10.0.0.1/32", "set to 10.0.0.2/32", "clear to 10.0.0.1/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, e *fakeEngine, m *Manager, h *fakeHost) {
				m.cfg.Engines[fault.EBPF] = &movingEngine{fakeEngine: e, fail: tt.fail}
				f, err := m.Apply(t.Context(), with(toDB(qdisc.Netem{Loss: 20}), func(s *fault.Spec) { s.Direction = tt.direction }))
				if err == nil && tt.twin {
					_, err = m.Apply(t.Context(), toDB(qdisc.Netem{Delay: time.Second}))
				}
				if err != nil {
					t.Fatal(err)
				}
				e.count(fault.Counters{Seen: 10, Lost: 2})
				e.done()
				e.failSets(func(target.Place, qdisc.Netem) error { return tt.failSet })
				h.set("db", "10.0.0.2")
				nextLookup()
				if diff := cmp.Diff(tt.want, e.done()); diff != "" {
					t.Errorf("done (-want +got):\n%s", diff)
				}
				e.failSets(nil)
				got, err := m.Get(t.Context(), f.ID)
				if err != nil || got.State != fault.Active || tt.direction == "" && !tt.twin && got.Counters != (fault.Counters{Seen: 10, Lost: 2}) {
					t.Errorf("%+v, %v, want it active with what it counted before", got, err)
				}
				moved := 0
				for _, p := range m.held[f.ID].places() {
					if strings.Contains(p.Match.String(), "10.0.0.2") {
						moved++
					}
				}
				if moved != tt.toNew || len(e.inForce()) != tt.all {
					t.Errorf("%d places at the new address, in force %v", moved, e.inForce())
				}
			})
		})
	}
}
