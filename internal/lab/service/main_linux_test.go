package service

import (
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) {
	child.Register("whoami", whoami)
	child.Run()
	os.Exit(m.Run())
}

// whoami prints whom it runs as and waits for the end of its lifeline.
func whoami([]string) int {
	fmt.Println("uid", os.Getuid(), "gid", os.Getgid())
	groups, err := os.Getgroups()
	fmt.Println("groups", groups, err)
	b := make([]byte, 1)
	n, err := os.Stdin.Read(b)
	fmt.Println("lifeline", n, err)
	return 0
}

var counter atomic.Int32

// place is a namespace and a folder for services.
type place struct {
	namespace, folder string
}

func newPlace(t *testing.T) place {
	t.Helper()
	testenv.Root(t)
	p := place{namespace: fmt.Sprintf("nt-service-%d-%d", os.Getpid(), counter.Add(1))}
	if err := namespaces.Create(p.namespace); err != nil {
		t.Fatal(err)
	}
	// Where every user may go, unlike t.TempDir.
	dir, err := os.MkdirTemp("", "nt-service-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.folder = dir
	t.Cleanup(func() {
		if left, err := namespaces.PIDs(p.namespace); err != nil || len(left) > 0 {
			t.Errorf("processes %v are left in %s: %v", left, p.namespace, err)
		}
		if _, err := StopInside(t.Context(), []string{p.namespace}); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		if err := namespaces.Delete(p.namespace); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	return p
}

const path = "PATH=/usr/local/bin:/usr/bin:/bin"

// shell is an order for a shell script, as nobody.
func (p place) shell(script string) Order {
	return Order{
		Name: "it", Folder: p.folder, Command: []string{"sh", "-c", script}, Environment: []string{path},
		Identity: Identity{UID: 65534, GID: 65534}, Stop: []Step{{sigTerm, 300 * time.Millisecond}},
	}
}

func (p place) start(t *testing.T, o Order) (*Running, error) {
	t.Helper()
	r, err := Start(t.Context(), p.namespace, o, func(Process) error { return nil })
	if err == nil {
		t.Cleanup(func() { r.stop(t, o) })
	}
	return r, err
}

// stop ends the service and checks that nothing is left that it knows of.
func (r *Running) stop(t *testing.T, o Order) {
	t.Helper()
	if r.Lifeline != nil {
		_ = r.Lifeline.Close()
	}
	if err := r.Keeper.StopKeeper(o.StopLimit()); err != nil {
		t.Error(err)
	}
	if r.State.Main.Alive() {
		t.Errorf("process %d lives on", r.State.Main.PID)
	}
}

func (p place) log(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(LogPath(p.folder, "it"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// eventually waits for what must come, on a slow machine too.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after 20 s: %s", what)
		}
	}
}
