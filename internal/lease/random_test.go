package lease

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// What the kernel holds is what is listed, after every step of a random life, failing
// steps included.
func TestKernelHoldsWhatIsListed(t *testing.T) {
	const seed, lives, steps = 1, 30, 50
	for life := range lives {
		r := rand.New(rand.NewPCG(seed, uint64(life)))
		e := newFakeEngine()
		m, _ := newHost(t, e, nil)
		var history []string
		applied, refused, failed := 0, 0, 0
		for range steps {
			broken := r.IntN(5) == 0
			if broken { // each call of this step fails at random
				e.failSets(func(target.Place, qdisc.Netem) error {
					if r.IntN(2) == 0 {
						return errBroken
					}
					return nil
				})
			}
			f, step, err := randomStep(t, r, m)
			e.failSets(nil)
			history = append(history, fmt.Sprintf("%s: %s %v", step, f.ID, err))
			switch {
			case err == nil && step == "apply":
				applied++
			case errors.Is(err, fault.ErrConflict):
				refused++
			case errors.Is(err, errBroken):
				failed++
				if broken { // an undo may have failed, too: what is said to be in force is put there again
					for _, h := range m.order {
						if err := m.restore(t.Context(), h); err != nil {
							t.Fatal(err)
						}
					}
				}
			case err != nil:
				t.Fatalf("life %d: %v\n%v", life, err, history)
			}
			want := map[string]qdisc.Netem{}
			for _, l := range m.List(t.Context()) {
				h, err := m.Held(t.Context(), l.ID)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range h.Places {
					want[p.Place.Key()] = p.Netem
				}
			}
			if diff := cmp.Diff(want, e.inForce()); diff != "" {
				t.Fatalf("life %d: listed and in the kernel (-want +got):\n%s\n%v", life, diff, history)
			}
		}
		if applied < 5 || refused < 3 {
			t.Errorf("life %d: %d applied, %d refused, %d failed: too few for a test", life, applied, refused, failed)
		}
	}
}

var errBroken = errors.New("broken")

func randomStep(t *testing.T, r *rand.Rand, m *Manager) (fault.Fault, string, error) {
	owner := []string{"uid 0", "uid 0", "uid 7"}[r.IntN(3)]
	all := m.List(t.Context())
	switch k := r.IntN(10); {
	case k < 6:
		s := on([]string{"80", "81", "80-90", "443", ""}[r.IntN(5)])
		s.Owner, s.Direction = owner, []fault.Direction{fault.To, fault.From, fault.Both}[r.IntN(3)]
		s.Selector.Device = []string{"v0", "v1", "lo"}[r.IntN(3)]
		if r.IntN(3) == 0 {
			s.Packet = &qdisc.Netem{Delay: 1e6}
		}
		if s.Selector.Device == "lo" && len(s.Selector.PeerPorts) == 0 {
			s.Direction = fault.To
		}
		if r.IntN(6) == 0 {
			s.Selector, s.Target = nil, "pg"
		}
		f, err := m.Apply(t.Context(), s)
		return f, "apply", err
	case len(all) == 0:
		return fault.Fault{}, "nothing", nil
	case k < 7:
		loss := qdisc.Percent(1 + r.IntN(50))
		f, err := m.Change(t.Context(), all[r.IntN(len(all))].ID, owner, 0, qdisc.Patch{Loss: &loss})
		return f, "change", err
	default:
		ended, err := m.Clear(t.Context(), fault.Selector{ID: all[r.IntN(len(all))].ID}, owner)
		if err != nil || len(ended) == 0 {
			return fault.Fault{}, "clear", err
		}
		return ended[0], "clear", nil
	}
}
