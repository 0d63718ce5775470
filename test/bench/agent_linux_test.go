package bench

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// start runs netemd with a configuration until the benchmark ends, and returns a client.
func start(b *testing.B, config string) *client.Client {
	b.Helper()
	testenv.Root(b)
	dir := b.TempDir()
	path := filepath.Join(dir, "netemd")
	if out, err := exec.Command("go", "build", "-o", path, "netemd/cmd/netemd").CombinedOutput(); err != nil {
		b.Fatalf("go build: %v\n%s", err, out)
	}
	state, file := filepath.Join(dir, "s"), filepath.Join(dir, "netemd.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		b.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "--config", file, "--state-dir", state, "--log-level", "warn")
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
		if err := cmd.Wait(); err != nil || !killer.Stop() {
			b.Errorf("netemd did not end well: %v\n%s", err, &log)
		}
	})
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		c, err := client.Open(client.Endpoint{Socket: filepath.Join(state, "netemd.sock")})
		if err == nil {
			b.Cleanup(func() { _ = c.Close() })
			if _, err = c.List(b.Context()); err == nil {
				return c
			}
		}
		if time.Now().After(end) {
			b.Fatalf("netemd does not answer: %v", err)
		}
	}
}

// pairs makes two namespaces with veths, of which v0, v1, ... are in the first one, whose
// name it returns.
func pairs(b *testing.B, n int) string {
	b.Helper()
	testenv.Root(b)
	x, y := fmt.Sprintf("nt-bench-%d-x", os.Getpid()), fmt.Sprintf("nt-bench-%d-y", os.Getpid())
	for _, ns := range []string{x, y} {
		if err := namespaces.Create(ns); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			if err := namespaces.Delete(ns); err != nil {
				b.Error(err)
			}
		})
	}
	for i := range n {
		end := func(ns string, host byte) namespaces.VethEnd {
			address := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 79, byte(i), host}), 24)
			return namespaces.VethEnd{Namespace: ns, Name: fmt.Sprint("v", i), Addresses: []netip.Prefix{address}}
		}
		if err := namespaces.CreateVeth(end(x, 1), end(y, 2)); err != nil {
			b.Fatal(err)
		}
	}
	return x
}

// times are what each of several things took, by name.
type times map[string][]time.Duration

// take times f.
func (t times) take(b *testing.B, name string, f func(context.Context) error) {
	b.Helper()
	begun := time.Now()
	err := f(b.Context())
	t[name] = append(t[name], time.Since(begun))
	if err != nil {
		b.Fatalf("%s: %v", name, err)
	}
}

// quantile is of what was taken, in microseconds.
func (t times) quantile(name string, q float64) float64 {
	all := slices.Sorted(slices.Values(t[name]))
	if len(all) == 0 {
		return 0
	}
	return float64(all[int(q*float64(len(all)-1))].Nanoseconds()) / 1e3
}

// report is quantiles of each; ns/op, of all of them together, would say nothing.
func (t times) report(b *testing.B, quantiles ...float64) {
	b.Helper()
	for name := range t {
		for _, q := range quantiles {
			b.ReportMetric(t.quantile(name, q), fmt.Sprintf("%s-p%.0f-us", name, 100*q))
		}
	}
	b.ReportMetric(0, "ns/op")
}
