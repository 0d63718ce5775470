package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/child"
	"netemd/internal/client"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) {
	child.Run()
	if s := os.Getenv(leaverEnv); s != "" {
		leave(s)
		os.Exit(1)
	}
	testenv.Main(m)
}

// netns makes a namespace that ends with the test.
func netns(t testing.TB, name string) string {
	t.Helper()
	testenv.Root(t)
	name = fmt.Sprintf("nt-agent-%d-%s", os.Getpid(), name)
	if err := namespaces.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(name); err != nil {
			t.Error(err)
		}
	})
	return name
}

// pair connects two namespaces: v0 with 10.78.0.1 in a, v1 with 10.78.0.2 in b.
func pair(t testing.TB, a, b string) {
	t.Helper()
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: a, Name: "v0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.1/24"), netip.MustParsePrefix("fd78::1/64")}},
		namespaces.VethEnd{Namespace: b, Name: "v1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.2/24"), netip.MustParsePrefix("fd78::2/64")}})
	if err != nil {
		t.Fatal(err)
	}
	// The kernel lets packets pass when it has noticed the carrier, up to 1 s later.
	for end := time.Now().Add(5 * time.Second); !up(t, a, "v0") || !up(t, b, "v1"); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the pair does not come up")
		}
	}
}

func up(t testing.TB, ns, name string) (up bool) {
	t.Helper()
	err := namespaces.Do(t.Context(), ns, func() error {
		link, err := netlink.LinkByName(name)
		up = err == nil && link.Attrs().OperState == netlink.OperUp
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return up
}

// serve runs an agent with a state folder of its own until the test ends, and returns
// a client of it.
func serve(t testing.TB) *client.Client {
	t.Helper()
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	a, err := New(t.Context(), Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	c, err := client.Dial(filepath.Join(dir, "netemd.sock"))
	t.Cleanup(func() {
		if c != nil {
			_ = c.Close()
		}
		stop()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("the agent's end: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the agent did not end within a minute")
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("the state folder is still there: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
