package namespaces

import (
	"errors"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// closing counts its ends.
type closing struct{ ends *atomic.Int32 }

func (c *closing) Close() error {
	c.ends.Add(1)
	return nil
}

// within polls until what is wanted has come, for as long as a busy machine may need.
func within(t *testing.T, what string, came func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !came(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not %s", what)
		}
	}
}

func shareOf(t *testing.T, name string) *Session {
	t.Helper()
	s, err := Share(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSessionIsSharedAndLetGo(t *testing.T) {
	name := create(t)
	var ends, dials atomic.Int32
	dial := func() (*closing, error) {
		dials.Add(1)
		return &closing{&ends}, nil
	}
	var all sync.WaitGroup
	var first atomic.Pointer[Session]
	hold := shareOf(t, name) // so that no pause of the machine ends it in between
	for range 50 {
		all.Go(func() {
			if err := Within(name, func(s *Session) error {
				if !first.CompareAndSwap(nil, s) && first.Load() != s {
					t.Error("two sessions")
				}
				_, err := Kept(t.Context(), s, dial)
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if dials.Load() != 1 || ends.Load() != 0 {
		t.Errorf("%d dialed, %d closed", dials.Load(), ends.Load())
	}
	n, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if c, err := n.Cookie(); err != nil || c != hold.Cookie() {
		t.Errorf("cookie %d, want %d (%v)", hold.Cookie(), c, err)
	}
	home := current(t)
	if err := hold.Do(t.Context(), func() error {
		if current(t) == home {
			t.Error("not inside")
		}
		return nil
	}); err != nil || current(t) != home {
		t.Errorf("%v, now in %s", err, current(t))
	}
	hold.Release()
	within(t, "let go after its last use", func() bool { return ends.Load() == 1 })
	if again := shareOf(t, name); again == hold {
		t.Error("a session that was let go")
	} else {
		again.Release()
	}
}

// A namespace made anew under a name is another one at once, also while the old one is used.
func TestSessionFollowsTheName(t *testing.T) {
	name := create(t)
	old := shareOf(t, name)
	if err := Delete(name); err != nil {
		t.Fatal(err)
	}
	if _, err := Share(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a name: %v", err)
	}
	if err := Create(name); err != nil {
		t.Fatal(err)
	}
	now := shareOf(t, name)
	defer now.Release()
	if old.Cookie() == now.Cookie() || old == now {
		t.Errorf("the same namespace %d", now.Cookie())
	}
	if err := old.Do(t.Context(), func() error { return nil }); err != nil {
		t.Error(err)
	}
	old.Release()
}

// What nobody uses keeps a deleted namespace for a moment only: the other end of its veth
// goes.
func TestSessionLetsADeletedNamespaceGo(t *testing.T) {
	a, b := create(t), create(t)
	if err := CreateVeth(VethEnd{Namespace: a, Name: "v0"}, VethEnd{Namespace: b, Name: "v1"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		shareOf(t, a).Release()
	}
	if err := Delete(a); err != nil {
		t.Fatal(err)
	}
	within(t, "gone with its namespace", func() bool { return !strings.Contains(devices(t, b), "v1") })
}

func TestSpoiledSessionIsNotFound(t *testing.T) {
	name := create(t)
	var ends atomic.Int32
	s := shareOf(t, name)
	if _, err := Kept(t.Context(), s, func() (*closing, error) { return &closing{&ends}, nil }); err != nil {
		t.Fatal(err)
	}
	s.Spoil()
	s.Spoil()
	again := shareOf(t, name)
	defer again.Release()
	if again == s || again.Cookie() != s.Cookie() || ends.Load() != 0 {
		t.Errorf("%p after %p, %d closed", again, s, ends.Load())
	}
	if s.Release(); ends.Load() != 1 {
		t.Error("not closed with its last user")
	}
}

func TestShareRefuses(t *testing.T) {
	for _, name := range []string{"../x", "no-such-nt-ns"} {
		if s, err := Share(name); err == nil {
			s.Release()
			t.Errorf("%s: no error", name)
		}
	}
	failed := errors.New("failed")
	name := create(t)
	err := Within(name, func(s *Session) error {
		_, err := Kept(t.Context(), s, func() (*closing, error) { return nil, failed })
		return err
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
}
