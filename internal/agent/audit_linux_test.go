package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"netemd/internal/audit"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/qdisc"
)

func auditLines(t testing.TB, path string) (all []audit.Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		var r audit.Record
		if err := json.Unmarshal(s.Bytes(), &r); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		all = append(all, r)
	}
	return all
}

func port(p uint16) target.Ports { return target.Port(p) }

// discard is a connection of nobody.
type discard struct{ net.Conn }

func (*discard) Close() error { return nil }

// Every change is written down with who asked for it, and what happens without anybody.
func TestAudit(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	_, c := serveWith(t, Config{Settings: settings(func(c *config.Config) { c.Audit.Path = path })})
	f := apply(t, c, fault.Spec{Selector: ports(a, port(5001)), Packet: &qdisc.Netem{Loss: 1}, SSHConnection: "192.0.2.1 50000 192.0.2.2 22"})
	change := qdisc.Netem{Loss: 2}
	if _, err := c.Change(t.Context(), f.ID, qdisc.Patch{Loss: &change.Loss}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: "zzz1"}); err == nil {
		t.Error("an unknown fault was cleared")
	}
	short := apply(t, c, fault.Spec{Selector: ports(a, port(5001)), Packet: &qdisc.Netem{Loss: 1}, TTL: time.Second})
	hold, err := c.Hold(t.Context(), held(a), nil)
	if err == nil {
		t.Error("a fault was held where another one stands")
		_, _ = hold.Release(t.Context())
	}
	var got []audit.Record
	eventually(t, "the expiry is written down", func() bool {
		got = auditLines(t, path)
		return len(got) > 0 && got[len(got)-1].Verb == "expired"
	})
	if hold, err = c.Hold(t.Context(), held(a), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := hold.Release(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "the release is written down", func() bool {
		got = auditLines(t, path)
		return got[len(got)-1].Verb == "release"
	})
	var verbs []string
	for _, r := range got {
		verbs = append(verbs, r.Verb+" "+r.Code)
		wantActor := "uid 0 (root)"
		if r.Verb == "expired" {
			wantActor = audit.Agent
		}
		if r.Actor != wantActor || (r.Peer == nil) != (r.Verb == "expired") || r.Peer != nil && (*r.Peer.UID != 0 || int(r.Peer.PID) != os.Getpid()) {
			t.Errorf("%+v: by %s, want %s", r, r.Actor, wantActor)
		}
		if r.Code == "OK" && (len(r.Faults) != 1 || r.Target != "dev:v0@"+a) || r.Monotonic <= 0 || r.Peer != nil && r.Duration <= 0 {
			t.Errorf("%+v", r)
		}
		if says(r.Request, "50000") {
			t.Errorf("the ssh session is written down: %s", r.Request)
		}
	}
	want := []string{"apply OK", "change OK", "clear OK", "clear NotFound", "apply OK", "apply FailedPrecondition", "expired OK", "apply OK", "release OK"}
	if !slices.Equal(verbs, want) {
		t.Errorf("written down:\n%q, want\n%q", verbs, want)
	}
	if !says(got[0].Request, "lossPercent", "v0") || got[0].Method != "Faults/Apply" || got[0].Faults[0] != f.ID || got[6].Faults[0] != short.ID {
		t.Errorf("the first: %+v", got[0])
	}
}

// A gap in the events is told, and what comes after it is followed.
func TestEventsAfterAGap(t *testing.T) {
	var got []uint64
	var gaps, watches int
	err := followEvents(t.Context(), func(_ context.Context, after uint64, life string, f func(fault.Event) error) error {
		watches++
		if after != 0 || (life == "") != (watches > 1) {
			t.Errorf("watch %d: after %d of life %q", watches, after, life)
		}
		if err := f(fault.Event{Number: uint64(watches * 10)}); err != nil {
			t.Error(err)
		}
		if watches < 3 {
			return lease.ErrSlowWatcher
		}
		return nil
	}, "a life", func(e fault.Event) { got = append(got, e.Number) }, func(err error) {
		if gaps++; !errors.Is(err, fault.ErrMissed) {
			t.Errorf("gap %d: %v", gaps, err)
		}
	})
	if err != nil || gaps != 2 || !slices.Equal(got, []uint64{10, 20, 30}) {
		t.Errorf("%v, %d gaps, events %v", err, gaps, got)
	}
}
