package agent

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/access"
	"netemd/internal/child"
	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/lab"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) {
	child.Run()
	if s := os.Getenv(actorEnv); s != "" {
		os.Exit(act(s))
	}
	if s := os.Getenv(chooserEnv); s != "" {
		choose(s)
		os.Exit(0)
	}
	if s := os.Getenv(leaverEnv); s != "" {
		leave(s)
		os.Exit(1)
	}
	if s := os.Getenv(toxicEnv); s != "" {
		leaveToxic(s)
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
	_, c := serveWith(t, Config{})
	return c
}

// serveWith is serve of a configuration, of which the state folder and what was not said
// are filled in. The state folder may be left by what cfg.Settings.Keep hands over.
func serveWith(t testing.TB, cfg Config) (*Agent, *client.Client) {
	t.Helper()
	testenv.Root(t)
	if cfg.StateDir == "" {
		cfg.StateDir = filepath.Join(t.TempDir(), "s")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	a, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	c, err := client.Open(client.Endpoint{Socket: filepath.Join(cfg.StateDir, "netemd.sock")})
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
		if _, err := os.Stat(cfg.StateDir); !os.IsNotExist(err) && !cfg.Settings.Keep {
			t.Errorf("the state folder is still there: %v", err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return a, c
}

// settings are the default with changes.
func settings(change func(*config.Config)) config.Config {
	c := config.Default()
	change(&c)
	return c
}

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// eventually waits until what is so, for the 10 s that a very slow machine may need.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// bare is an agent that has nothing but its rules, and no target.
func bare(t *testing.T, p *access.Policy) *Agent {
	t.Helper()
	labs, err := lab.New(lab.Config{StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return &Agent{policy: p, labs: labs, definitions: &definitions{}}
}
