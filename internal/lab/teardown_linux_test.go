package lab

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/target"
	"netemd/namespaces"
)

// TestBadRecord has records that cannot be read beside a lab that a dead agent left.
func TestBadRecord(t *testing.T) {
	healthy, ruined, others := testDefinition(t), testDefinition(t), testDefinition(t)
	dir := t.TempDir()
	first, second := newManager(t, dir), newManager(t, t.TempDir())
	for m, ds := range map[*Manager][]Definition{first: {healthy, ruined}, second: {others}} {
		for _, d := range ds {
			if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	targets, err := first.Targets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	believable := `{"schemaVersion":2,"definition":{"Name":"x","Nodes":[{"Name":"a"}]},"services":[{"Name":"db","address":"1.2.3.4:5","home":"/etc"}]}`
	bad := map[string]string{
		"other": `{"schemaVersion":3}`, ruined.Name: "{", others.Name: "", "..": "", "x": believable,
	}
	for name, text := range bad {
		if err := os.WriteFile(first.recordPath(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	own := filepath.Join(dir, "own")
	if err := errors.Join(os.WriteFile(own, nil, 0o600), os.MkdirAll(first.serviceDir("other", "db"), 0o755)); err != nil {
		t.Fatal(err)
	}

	next := newManager(t, dir)
	var log bytes.Buffer
	next.cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
	if err := next.Adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	contains(t, log.String(), "level=WARN", next.recordPath("other"), "version 3, want 2", next.recordPath(ruined.Name), "is none of ours")
	adopted, err := next.Targets(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	same := cmp.Comparer(func(a, b target.Place) bool { return a.Key() == b.Key() })
	addresses := cmpopts.EquateComparable(netip.AddrPort{}, netip.Prefix{})
	targets = slices.DeleteFunc(targets, func(x target.Target) bool { return x.Lab != healthy.Name })
	if diff := cmp.Diff(targets, adopted, same, addresses); diff != "" {
		t.Errorf("targets before and after (-want +got):\n%s", diff)
	}
	if _, err := namespaces.Open(ruined.Namespace("wire")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("namespace of a lab with a bad record: %v", err)
	}

	// A second time without a reader of the healthy lab's record.
	_ = next.Close()
	if err := os.WriteFile(next.recordPath(healthy.Name), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := cleaned(t.Context(), newManager(t, dir)); err != nil {
			t.Fatal(err)
		}
	}
	bad[healthy.Name] = "{"
	left, err := os.ReadDir(first.dir())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		name, _ := strings.CutSuffix(f.Name(), ".json.bad")
		text, err := os.ReadFile(filepath.Join(first.dir(), f.Name()))
		if want, ok := bad[name]; !ok || err != nil || string(text) != want {
			t.Errorf("%s: %q, %v, want %q", f.Name(), text, err, want)
		}
	}
	if len(left) != len(bad) {
		t.Errorf("%d files are left, want %d: %v", len(left), len(bad), left)
	}
	if _, err := os.Stat(own); err != nil {
		t.Errorf("what is not a lab's: %v", err)
	}
	if err := os.RemoveAll(first.dir()); err != nil {
		t.Fatal(err)
	}
	nothingLeft(t, dir, healthy)
	nothingLeft(t, dir, ruined)
	talk(t, others.Namespace("client"), others.Namespace("server"))
}

// TestInterruptedDown ends the context while a lab is taken down, and looks at the lab
// at that moment.
func TestInterruptedDown(t *testing.T) {
	for name, down := range map[string]func(context.Context, *Manager, Definition) error{
		"down": func(ctx context.Context, m *Manager, d Definition) error {
			_, err := m.Down(ctx, d.Name)
			return err
		},
		"cleanup": func(ctx context.Context, m *Manager, _ Definition) error { return cleaned(ctx, m) },
		"cleanup of another's": func(ctx context.Context, m *Manager, _ Definition) error {
			_ = m.Close()
			return cleaned(ctx, m)
		},
		"orphans": func(ctx context.Context, m *Manager, _ Definition) error {
			_ = m.Close()
			return errors.Join(os.RemoveAll(m.dir()), cleaned(ctx, m))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := testDefinition(t)
			dir := t.TempDir()
			m := newManager(t, dir)
			if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
				t.Fatal(err)
			}
			// It says when it is asked to end, and goes on.
			stubborn := exec.Command("sh", "-c", "trap 'echo asked' TERM; echo; while :; do sleep 0.02; done")
			out, err := stubborn.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := namespaces.Start(d.Namespace("client"), stubborn); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = stubborn.Process.Kill(), stubborn.Wait() }()
			said := make([]byte, 64)
			if _, err := out.Read(said); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- down(ctx, m, d) }()
			if _, err := out.Read(said); err != nil {
				t.Fatal(err)
			}
			cancel()
			if ts, err := m.Targets(t.Context()); err != nil || len(ts) != 0 {
				t.Errorf("targets meanwhile: %v, %v", ts, err)
			}
			at := netip.AddrPortFrom(serverAddress, 5432)
			if _, err := m.Postgres(d.Name, at); !errors.Is(err, ErrUnknown) {
				t.Errorf("database meanwhile: %v", err)
			}
			if _, err := m.ProxySocket(d.Name, at); !errors.Is(err, ErrUnknown) {
				t.Errorf("proxy meanwhile: %v", err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if infos, err := m.List(t.Context()); err != nil || len(infos) != 0 {
				t.Errorf("labs after it: %+v, %v", infos, err)
			}
			nothingLeft(t, dir, d)
		})
	}
}

// TestBroken makes the removal of a lab fail: of one that could not be made, and of
// one that was up. It stays known until it is gone.
func TestBroken(t *testing.T) {
	for _, wasUp := range []bool{false, true} {
		d := testDefinition(t)
		dir := t.TempDir()
		m := newManager(t, dir)
		// A folder with something inside, where the record was, cannot be removed as one.
		obstacle := filepath.Join(m.recordPath(d.Name), "obstacle")
		obstruct := func() error {
			return errors.Join(os.Remove(m.recordPath(d.Name)), os.MkdirAll(obstacle, 0o755))
		}
		if wasUp {
			if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
				t.Fatal(err)
			}
			if err := obstruct(); err != nil {
				t.Fatal(err)
			}
		} else {
			stop := errors.New("stop")
			var first sync.Once // devices are made side by side
			m.cfg.NewDevice = func(context.Context, target.Place) (err error) {
				first.Do(func() { err = errors.Join(stop, obstruct()) })
				return err
			}
			if _, err := m.Up(t.Context(), d, Identity{}, nil); !errors.Is(err, stop) || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("up: %v, want the cause and why it was not undone", err)
			}
		}
		m.cfg.NewDevice = nil
		for range 2 {
			if existed, err := m.Down(t.Context(), d.Name); !existed || err == nil || !strings.Contains(err.Error(), "not empty") {
				t.Errorf("down: %v, %v", existed, err)
			}
			if infos, err := m.List(t.Context()); err != nil || len(infos) != 1 {
				t.Errorf("labs: %+v, %v", infos, err)
			}
			if ts, err := m.Targets(t.Context()); err != nil || len(ts) != 0 {
				t.Errorf("targets: %v, %v", ts, err)
			}
			if _, err := m.Up(t.Context(), d, Identity{}, nil); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "take it down first") {
				t.Errorf("up of a broken lab: %v", err)
			}
		}
		if err := os.Remove(obstacle); err != nil {
			t.Fatal(err)
		}
		if existed, err := m.Down(t.Context(), d.Name); !existed || err != nil {
			t.Errorf("down after the obstacle: %v, %v", existed, err)
		}
		nothingLeft(t, dir, d)
		if _, err := m.Up(t.Context(), d, Identity{}, nil); err != nil {
			t.Errorf("up after it: %v", err)
		}
	}
}
