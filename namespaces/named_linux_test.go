package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/testenv"
)

var counter atomic.Int32

// unique returns a name for a test's namespace and removes it in the end.
func unique(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	name := fmt.Sprintf("nt-ns-%d-%d", os.Getpid(), counter.Add(1))
	t.Cleanup(func() {
		if err := Delete(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// create makes a namespace for the test.
func create(t *testing.T) string {
	t.Helper()
	name := unique(t)
	if err := Create(name); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestCreateOpenDelete(t *testing.T) {
	name := create(t)
	if err := Create(name); !errors.Is(err, fs.ErrExist) || errors.Is(err, ErrStale) {
		t.Errorf("second create: %v, want fs.ErrExist alone", err)
	}
	n, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	own, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = own.Close() }()
	a, err := n.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	b, err := own.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	if a == b || a == 0 || b == 0 {
		t.Errorf("cookies %d and %d of two namespaces", a, b)
	}
	if err := n.Close(); err != nil {
		t.Fatal(err)
	}
	if err := n.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	if e, ok := entry(t, name); !ok || e.Stale {
		t.Errorf("list has %+v, %v", e, ok)
	}
	if out, err := exec.Command("ip", "netns", "exec", name, "true").CombinedOutput(); err != nil {
		t.Errorf("ip netns exec: %v: %s", err, out)
	}
	for i := range 2 {
		if err := Delete(name); err != nil {
			t.Errorf("delete %d: %v", i, err)
		}
	}
	if _, err := os.Lstat(filepath.Join(Dir, name)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after delete: %v", err)
	}
	if _, err := Open(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open after delete: %v, want fs.ErrNotExist", err)
	}
}

func entry(t *testing.T, name string) (Entry, bool) {
	t.Helper()
	list, err := List()
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name == name {
			return e, true
		}
	}
	return Entry{}, false
}

func TestIPMakesWeOpen(t *testing.T) {
	name := unique(t)
	if out, err := exec.Command("ip", "netns", "add", name).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := Do(t.Context(), name, func() error { return nil }); err != nil {
		t.Error(err)
	}
}

func TestCreateWithFailingSetup(t *testing.T) {
	name := unique(t)
	want := errors.New("no")
	if err := CreateWith(name, func() error { return want }); !errors.Is(err, want) {
		t.Errorf("got %v", err)
	}
	if _, ok := entry(t, name); ok {
		t.Error("the namespace has a name")
	}
}

// TestStale is case C41: a file that is no namespace, of any kind, is told at once.
func TestStale(t *testing.T) {
	for kind, make := range map[string]func(path string) error{
		"file": func(p string) error { return os.WriteFile(p, nil, 0) },
		"pipe": func(p string) error { return unix.Mkfifo(p, 0o600) },
		"mount namespace": func(p string) error {
			if err := os.WriteFile(p, nil, 0); err != nil {
				return err
			}
			return unix.Mount("/proc/self/ns/uts", p, "none", unix.MS_BIND, "")
		},
	} {
		t.Run(kind, func(t *testing.T) {
			name := create(t) // so that Dir is there
			name += "-ghost"
			t.Cleanup(func() { _ = Delete(name) })
			if err := make(filepath.Join(Dir, name)); err != nil {
				t.Fatal(err)
			}
			result := gotWithin(t, func() error { return Do(context.Background(), name, func() error { return nil }) })
			if !errors.Is(result, ErrStale) || !strings.Contains(result.Error(), name+": not a network namespace (nsfs): stale file") {
				t.Errorf("do: %v", result)
			}
			if _, err := PIDs(name); !errors.Is(err, ErrStale) {
				t.Errorf("pids: %v", err)
			}
			if e, ok := entry(t, name); !ok || e.Stale == (kind == "mount namespace") {
				// List looks without opening, and cannot tell the kinds of nsfs apart.
				t.Errorf("list has %+v, %v", e, ok)
			}
			if err := Create(name); !errors.Is(err, fs.ErrExist) {
				t.Errorf("create: %v", err)
			}
			if err := Delete(name); err != nil {
				t.Errorf("delete: %v", err)
			}
			if _, ok := entry(t, name); ok {
				t.Error("still there after delete")
			}
		})
	}
}

func gotWithin(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Second):
		t.Fatal("hangs")
		return nil
	}
}

func TestPrune(t *testing.T) {
	name := create(t)
	if err := Prune(name); err != nil {
		t.Error(err)
	}
	if e, ok := entry(t, name); !ok || e.Stale {
		t.Errorf("a namespace was pruned: %+v, %v", e, ok)
	}
	ghost := unique(t)
	if err := os.WriteFile(filepath.Join(Dir, ghost), nil, 0); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Prune(ghost); err != nil {
			t.Error(err)
		}
		if _, ok := entry(t, ghost); ok {
			t.Error("the stale file is still there")
		}
	}
}

// TestDeleteEndsNamespace checks that no descriptor of ours keeps a deleted
// namespace alive: a veth end inside it takes its other end along.
func TestDeleteEndsNamespace(t *testing.T) {
	a, b := create(t), create(t)
	if err := CreateVeth(VethEnd{Namespace: a, Name: "v0"}, VethEnd{Namespace: b, Name: "v0"}); err != nil {
		t.Fatal(err)
	}
	if err := Delete(a); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(5 * time.Second)
	for devices(t, b) != "lo" {
		if time.Now().After(deadline) {
			t.Fatalf("%s still has %s", b, devices(t, b))
		}
		time.Sleep(10 * time.Millisecond)
	}
}
