package lease

import (
	"context"
	"errors"
	"maps"
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

// fakeOffloads is one device with segmentation offload on.
type fakeOffloads struct {
	mu                          sync.Mutex
	off                         map[string]bool // by fault
	failRead, failOff, failBack error
	reads                       int
}

var segmentation = []string{"rx-gro", "tx-generic-segmentation", "tx-gre-segmentation", "tx-sctp-segmentation", "tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"}

func (o *fakeOffloads) Read(context.Context, []target.Place) ([]fault.Offload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.reads++
	return []fault.Offload{{Namespace: "blue", Device: "v0", Before: segmentation}}, o.failRead
}

func (o *fakeOffloads) Off(_ context.Context, id string, devices []fault.Offload) ([]fault.Offload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failOff != nil {
		return nil, o.failOff
	}
	o.off[id] = true
	return []fault.Offload{{Namespace: "blue", Device: "v0", Before: devices[0].Before, Off: devices[0].Before}}, nil
}

func (o *fakeOffloads) Restore(_ context.Context, id string) ([]fault.Offload, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failBack != nil {
		return nil, o.failBack
	}
	delete(o.off, id)
	return []fault.Offload{{Namespace: "blue", Device: "v1"}}, nil
}

func (o *fakeOffloads) state() map[string]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.off)
}

func (o *fakeOffloads) fail(back error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.failBack = back
}

func newOffloadHost(t *testing.T, e *fakeEngine) (*Manager, *fakeOffloads) {
	o := &fakeOffloads{off: map[string]bool{}}
	m, _ := newHost(t, e, func(c *Config) { c.Offloads = o })
	t.Cleanup(func() {
		if left := o.state(); len(left) > 0 {
			t.Errorf("offload is off for %v", left)
		}
	})
	return m, o
}

func TestSuperPacketsAreWarnedOf(t *testing.T) {
	m, o := newOffloadHost(t, newFakeEngine())
	for _, tt := range []struct {
		netem   qdisc.Netem
		offload string
		warned  bool
	}{
		{qdisc.Netem{Loss: 5}, "", true},
		{qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}}, "", true},
		{qdisc.Netem{Reorder: 5, Delay: 1e6}, "", true},
		{qdisc.Netem{Rate: 1e6}, "", true},
		{qdisc.Netem{Delay: 1e6}, "", false},
		{qdisc.Netem{Loss: 5}, fault.OffloadOff, false},
	} {
		f, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.Packet, s.Offload = &tt.netem, tt.offload }))
		if err != nil {
			t.Fatal(err)
		}
		w := strings.Join(f.Warnings, "\n")
		if got := strings.Contains(w, "segmentation offload on (gso, tso, uso, others); --offload off"); got != tt.warned {
			t.Errorf("%s, offload %q: warned %t, want %t: %q", tt.netem, tt.offload, got, tt.warned, w)
		}
		var want []fault.Offload
		if tt.warned || tt.offload != "" {
			want = []fault.Offload{{Namespace: "blue", Device: "v0", Before: segmentation}}
		}
		if tt.offload != "" {
			want[0].Off = segmentation
		}
		if diff := cmp.Diff(want, f.Offloads); diff != "" || o.state()[f.ID] != (tt.offload != "") {
			t.Errorf("%s: offloads (-want +got):\n%s", tt.netem, diff)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil || len(o.state()) > 0 {
			t.Errorf("clear: %v, still off for %v", err, o.state())
		}
	}
}

// A fault on another protocol is not warned of what TCP's packets may be.
func TestOtherProtocolsAreNotWarnedOf(t *testing.T) {
	m, _ := newOffloadHost(t, newFakeEngine())
	for protocol, warned := range map[uint8]bool{0: true, 6: true, 17: false, 1: false} {
		f, err := m.Apply(t.Context(), with(on(""), func(s *fault.Spec) { s.Packet, s.Selector.Protocol = &qdisc.Netem{Loss: 5}, protocol }))
		if err != nil {
			t.Fatal(err)
		}
		if w := strings.Join(f.Warnings, "; "); strings.Contains(w, "64 KB of TCP") != warned {
			t.Errorf("protocol %d: %q, want a warning: %t", protocol, w, warned)
		}
		if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil {
			t.Fatal(err)
		}
	}
}

// Settings that do not matter are not read; a change that lets them matter reads them.
func TestSettingsAreReadWhereTheyMatter(t *testing.T) {
	m, o := newOffloadHost(t, newFakeEngine())
	f, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.Packet = &qdisc.Netem{Delay: 1e6} }))
	if err != nil || o.reads != 0 {
		t.Fatalf("a delay: %d reads, %v", o.reads, err)
	}
	five, six := qdisc.Percent(5), qdisc.Percent(6)
	for _, p := range []qdisc.Patch{{Loss: &five}, {Loss: &six}} {
		if f, err = m.Change(t.Context(), f.ID, "uid 0", 0, p); err != nil {
			t.Fatal(err)
		}
		if w := strings.Join(f.Warnings, "\n"); o.reads != 1 || len(f.Offloads) != 1 || !strings.Contains(w, "--offload off") {
			t.Errorf("changed to %s: %d reads, %+v, %q", f.Spec.Packet, o.reads, f.Offloads, w)
		}
	}
	if f, err = m.Renew(t.Context(), f.ID, "uid 0", 0); err != nil || o.reads != 1 || len(f.Offloads) != 1 {
		t.Errorf("renewed: %d reads, %+v, %v", o.reads, f.Offloads, err)
	}
}

func TestOffloadThatFails(t *testing.T) {
	broken := errors.New("ethtool: broken")
	e := newFakeEngine()
	m, o := newOffloadHost(t, e)
	off := with(on("80"), func(s *fault.Spec) { s.Offload = fault.OffloadOff })

	o.failRead = broken
	if f, err := m.Apply(t.Context(), on("80")); err != nil || !strings.Contains(strings.Join(f.Warnings, "\n"), "could not be read: ethtool: broken") {
		t.Errorf("settings that cannot be read: %v, %q, want a warning", err, f.Warnings)
	}
	if _, err := m.Clear(t.Context(), fault.Selector{All: true}, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Apply(t.Context(), off); !errors.Is(err, broken) || len(e.inForce()) > 0 {
		t.Errorf("settings that are to be changed and cannot be read: %v", err)
	}
	o.failRead, o.failOff = nil, broken
	if _, err := m.Apply(t.Context(), off); !errors.Is(err, broken) || len(e.inForce()) > 0 || len(m.List(t.Context())) > 0 {
		t.Errorf("settings that cannot be changed: %v, in force %v", err, e.inForce())
	}
	o.failOff = nil
	e.failSets(func(target.Place, qdisc.Netem) error { return broken })
	if _, err := m.Apply(t.Context(), off); !errors.Is(err, broken) || len(o.state()) > 0 {
		t.Errorf("a fault that cannot be set: %v, still off for %v", err, o.state())
	}
	e.failSets(nil)

	// What cannot be switched back is said, and tried again.
	f, err := m.Apply(t.Context(), off)
	if err != nil {
		t.Fatal(err)
	}
	o.fail(broken)
	if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); !errors.Is(err, broken) {
		t.Errorf("clear: %v, want %v", err, broken)
	}
	if l := m.List(t.Context()); len(l) != 1 || !strings.Contains(strings.Join(l[0].Warnings, "\n"), "clear failed: ethtool: broken") {
		t.Errorf("listed: %+v, want the fault with a warning", l)
	}
	o.fail(nil)
	if _, err := m.Clear(t.Context(), fault.Selector{ID: f.ID}, ""); err != nil {
		t.Error(err)
	}
}

func TestOffloadWithoutAKeeper(t *testing.T) {
	m, _ := newHost(t, newFakeEngine(), nil)
	if _, err := m.Apply(t.Context(), with(on("80"), func(s *fault.Spec) { s.Offload = fault.OffloadOff })); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%v, want unsupported", err)
	}
}

// The settings of our own devices are not read for each fault, but after a change.
func TestOwnSettingsAreRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, o := newOffloadHost(t, newFakeEngine())
		reads := func(s fault.Spec) int {
			t.Helper()
			before := o.reads
			f, err := m.Apply(t.Context(), s)
			if err == nil {
				_, err = m.Clear(t.Context(), fault.Selector{ID: f.ID}, "")
			}
			if err != nil || len(f.Offloads) != 1 {
				t.Fatalf("%+v, %v", f.Offloads, err)
			}
			return o.reads - before
		}
		pg := fault.Spec{Target: "pg", Owner: "uid 0", Packet: &qdisc.Netem{Loss: 5}}
		off := pg
		off.Offload = fault.OffloadOff
		got := []int{reads(pg), reads(pg), reads(off), reads(pg), reads(pg), reads(on("80")), reads(on("80"))}
		time.Sleep(settingsTime + 1)
		got = append(got, reads(pg))
		if diff := cmp.Diff([]int{1, 0, 1, 1, 0, 1, 1, 1}, got); diff != "" {
			t.Errorf("reads (-want +got):\n%s", diff)
		}
	})
}
