package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/namespaces"
)

// TestBuiltinLabs brings each built-in lab up under another name, goes through it from the
// clients to their targets, and takes it down. Those with a PostgreSQL take some seconds each.
func TestBuiltinLabs(t *testing.T) {
	a := start(t)
	for _, d := range labfile.Builtins() {
		t.Run(d.Name, func(t *testing.T) {
			postgres := strings.Contains(fmt.Sprint(d.Nodes), lab.KindPostgres)
			if postgres && !long() {
				t.Skip("a PostgreSQL takes long to make; NETEMD_TEST_LONG=1 does it")
			}
			builtin := d.Name
			d.Name = fmt.Sprintf("e%d-%s", os.Getpid(), builtin)
			a := *a
			a.t = t
			a.must("lab", "up", builtin, "--as", d.Name)
			a.must("lab", "up", builtin, "--as", d.Name) // changes nothing
			if out := a.must("lab", "show", d.Name).stdout; !strings.Contains(out, d.Nodes[0].Name) {
				t.Errorf("it is not drawn:\n%s", out)
			}
			if out := a.must("lab", "diff", d.Name).stdout; out != "" {
				t.Errorf("what is up differs from its definition:\n%s", out)
			}
			file := filepath.Join(t.TempDir(), "lab.yaml")
			if err := os.WriteFile(file, []byte(a.must("lab", "show", d.Name, "-o", "yaml").stdout), 0o600); err != nil {
				t.Fatal(err)
			}
			a.must("lab", "up", file) // it is the same
			reachable(t, d)
			switch builtin {
			case "dumbbell":
				bottleneck(t, a, d)
			case "ring":
				broken(t, a, d)
			}
			a.must("lab", "down", d.Name)
			for _, e := range must(namespaces.List()) {
				if strings.HasPrefix(e.Name, "netem-"+d.Name+"-") {
					t.Errorf("%s is left", e.Name)
				}
			}
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// reachable connects from the client of each target to the target, at each of its
// addresses.
func reachable(t *testing.T, d lab.Definition) {
	t.Helper()
	for i, target := range must(d.Plan()).Targets {
		def := d.Targets[i]
		for _, a := range d.Addresses(def.Node) {
			port := target.Address.Port()
			if port == 0 { // nobody listens there
				l, err := listen(t, target.ServerNamespace, a)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				port = uint16(l.Addr().(*net.TCPAddr).Port)
			}
			if _, err := connect(t, target.ClientNamespace, netip.AddrPortFrom(a, port)); err != nil {
				t.Errorf("from the client of %s to %v: %v", def.Name, a, err)
			}
		}
	}
}

// bottleneck measures the base impairment of the dumbbell, 10 ms each way, and that a fault
// comes on top of it.
func bottleneck(t *testing.T, a agent, d lab.Definition) {
	t.Helper()
	target := must(d.Plan()).Targets[0]
	took := func() time.Duration {
		d, err := connect(t, target.ClientNamespace, target.Address)
		if err != nil {
			t.Error(err)
		}
		return d
	}
	if d := took(); d < 20*time.Millisecond {
		t.Errorf("a connect through the bottleneck takes %v, want 20 ms or more", d)
	}
	a.must("delay", "50ms", "--target", d.Name+"/right1")
	if d := took(); d < 70*time.Millisecond {
		t.Errorf("with a fault of 50 ms a connect takes %v, want 70 ms or more", d)
	}
	if out := a.must("lab", "show", d.Name).stdout; !strings.Contains(out, "fault to right1: ") || !strings.Contains(out, "base both ways: delay 10ms") {
		t.Errorf("base and fault are not drawn:\n%s", out)
	}
	a.must("clear", "--target", d.Name+"/right1")
}

// broken takes away a device of the ring, which a diff tells.
func broken(t *testing.T, a agent, d lab.Definition) {
	t.Helper()
	a.must("lab", "exec", "--lab", d.Name, "north", "--", "ip", "link", "set", "eth0", "down")
	r := a.ctl("lab", "diff", d.Name)
	if r.code != 1 || !strings.Contains(r.stdout, "north") || r.stderr != "" {
		t.Errorf("with a device down a diff says %+v, want exit code 1 and the node", r)
	}
}

// listen listens in a namespace.
func listen(t *testing.T, namespace string, on netip.Addr) (l net.Listener, err error) {
	err = namespaces.Do(t.Context(), namespace, func() error {
		l, err = net.Listen("tcp", netip.AddrPortFrom(on, 0).String())
		return err
	})
	return l, err
}

// connect connects from a namespace and says how long that took. It tries for a while: what
// was just made may not know all ways yet.
func connect(t *testing.T, namespace string, to netip.AddrPort) (took time.Duration, err error) {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		err = namespaces.Do(t.Context(), namespace, func() error {
			before := time.Now()
			c, err := net.DialTimeout("tcp", to.String(), 3*time.Second)
			took = time.Since(before)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
		if err == nil {
			return took, nil
		}
	}
	return took, err
}
