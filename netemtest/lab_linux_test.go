package netemtest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/netemtest"
	"netemd/qdisc"
)

// duo is the smallest lab: what listens is the test's own.
const duo = `
lab: duo
nodes:
  client: {}
  server: {}
links:
  - {a: client, b: server, subnet: 10.77.0.0/24}
targets:
  web: {node: server, client: client, protocol: tcp, port: 8080}
`

// web serves HTTP on the server of a duo.
func web(t testing.TB, lab *netemtest.Network) {
	t.Helper()
	l, err := lab.Node("server").Listen("tcp", ":8080")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.RemoteAddr) }), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// get asks the web server of a duo once, over a connection of its own.
func get(ctx context.Context, lab *netemtest.Network) (string, error) {
	transport := &http.Transport{DialContext: lab.Node("client").DialContext, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+lab.Addr("web"), nil)
	if err != nil {
		return "", err
	}
	a, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = a.Body.Close() }()
	b, err := io.ReadAll(a.Body)
	return string(b), err
}

// Parallel tests have a lab each, with the same addresses, and each fault is in the one that its
// test aims at by the short name.
func TestParallelLabs(t *testing.T) {
	testenv.Root(t)
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			lab := netemtest.Lab(t, duo)
			web(t, lab)
			if i%2 == 0 {
				netemtest.Partition(t, "web")
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				if s, err := get(ctx, lab); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("through a partition: %q, %v", s, err)
				}
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, err := get(ctx, lab)
			if host, _, _ := net.SplitHostPort(s); err != nil || host != lab.Node("client").Addrs()[0].String() {
				t.Errorf("without a fault: %q, %v", s, err)
			}
		})
	}
}

// What a lab has goes by its names, and everything is gone behind the test.
func TestLab(t *testing.T) {
	testenv.Root(t)
	var before []string
	run(t, t.Name()+"Inner", func(r *recorder) {
		lab := netemtest.Lab(r, duo)
		if got, want := lab.Addr("web"), "10.77.0.2:8080"; got != want {
			t.Errorf("address %s, want %s", got, want)
		}
		if got, want := lab.Target("web"), lab.Name()+"/web"; got != want {
			t.Errorf("target %s, want %s", got, want)
		}
		if got := lab.Name(); !strings.HasPrefix(got, "duo-labinner-") || len(got) > 32 {
			t.Errorf("name %q", got)
		}
		// lo is up inside.
		l, err := lab.Node("server").Listen("tcp", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
		before, _ = filepath.Glob("/run/netns/netem-" + lab.Name() + "-*")
		netemtest.Inject(r, netemtest.Spec{Target: lab.Target("web"), Netem: qdisc.Netem{Loss: 20}}).AllowUnmet()
	}).wants(t, false)
	if len(before) < 3 {
		t.Errorf("namespaces of the lab: %v", before)
	}
	for _, ns := range before {
		if _, err := os.Stat(ns); err == nil {
			t.Errorf("%s is still there", ns)
		}
	}

	file := filepath.Join(t.TempDir(), "duo.yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(duo, "web:", "api:")), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, "File", func(r *recorder) {
		lab := netemtest.Lab(r, file)
		_ = lab.Addr("web")
	}).wants(t, true, `lab duo has no target "web"; it has: api`)
	run(t, "Proxy", func(r *recorder) { netemtest.Lab(r, duo).Proxy("web") }).wants(t, true, "target web of lab duo has no proxy")
	run(t, "Node", func(r *recorder) { netemtest.Lab(r, duo).Node("servr") }).wants(t, true, `no node "servr"; it has: client, server`)
	run(t, "Mistake", func(r *recorder) { netemtest.Lab(r, "lab: x\nnodes: {a: {}}\nlniks: []\n") }).wants(t, true, "3:1", "lniks")
	run(t, "Unknown", func(r *recorder) { netemtest.Lab(r, "pgg") }).wants(t, true, `unknown lab "pgg"`, "pg")
	run(t, "Missing", func(r *recorder) { netemtest.Lab(r, "./no-such.yaml") }).wants(t, true, "no such file")
}
