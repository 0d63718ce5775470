package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

// stormEnv makes the test program a child that switches until it is killed: the folder
// of the records and the namespace.
const stormEnv = "NETEMD_TEST_OFFLOAD_STORM"

func TestMain(m *testing.M) {
	if s := os.Getenv(stormEnv); s != "" {
		dir, namespace, _ := strings.Cut(s, "|")
		storm(dir, namespace)
		os.Exit(1)
	}
	testenv.Main(m)
}

var counter atomic.Int32

// space makes a namespace for the test.
func space(t testing.TB) string {
	t.Helper()
	testenv.Root(t)
	name := fmt.Sprintf("nt-offload-%d-%d", os.Getpid(), counter.Add(1))
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

// pair makes two namespaces with a veth pair: v0 in a, v1 in b, 10.79.0.1 and .2.
func pair(t testing.TB) (a, b string) {
	t.Helper()
	a, b = space(t), space(t)
	veth(t, namespaces.VethEnd{Namespace: a, Name: "v0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.79.0.1/24")}},
		namespaces.VethEnd{Namespace: b, Name: "v1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.79.0.2/24")}})
	return a, b
}

func veth(t testing.TB, a, b namespaces.VethEnd) {
	t.Helper()
	if err := namespaces.CreateVeth(a, b); err != nil {
		t.Fatal(err)
	}
	carrier(t, a.Namespace, a.Name)
	carrier(t, b.Namespace, b.Name)
}

// carrier waits until the kernel tells of the device's carrier, a little later than it
// is there.
func carrier(t testing.TB, namespace, device string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !strings.Contains(ip(t, "-n", namespace, "link", "show", device), "state UP"); {
		if time.Now().After(end) {
			t.Fatalf("%s in %s has no carrier", device, namespace)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// rename gives a device another name; older kernels want it down for that.
func rename(t *testing.T, namespace, from, to string) {
	t.Helper()
	ip(t, "-n", namespace, "link", "set", from, "down")
	ip(t, "-n", namespace, "link", "set", from, "name", to)
	ip(t, "-n", namespace, "link", "set", to, "up")
	carrier(t, namespace, to)
}

// ip runs iproute2's program.
func ip(t testing.TB, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// dump is all that the kernel says of the features of every device of the namespaces,
// in its own bytes, and what ip says of the devices.
func dump(t *testing.T, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		n, err := openNamespace(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		links, err := n.links.LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			data, err := n.tool.get(l.Attrs().Index, 0)
			if err != nil {
				t.Fatal(err)
			}
			all[name+" "+l.Attrs().Name] = string(data)
		}
		n.close()
		all[name] = ip(t, "-n", name, "-d", "link", "show")
	}
	return all
}

func unchanged(t *testing.T, what string, before map[string]string, names ...string) {
	t.Helper()
	if diff := cmp.Diff(before, dump(t, names...)); diff != "" {
		t.Errorf("%s: the devices are not as they were (-before +after):\n%s", what, diff)
	}
}

// read is Read of one place, by its device's name.
func read(t *testing.T, k *Keeper, namespace, device string, owned bool) []fault.Offload {
	t.Helper()
	found, err := k.Read(t.Context(), []target.Place{{Namespace: namespace, Device: device, Hook: target.Egress, Owned: owned}})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// on is what is on at the devices, without their names.
func on(found []fault.Offload) []string {
	var all []string
	for _, o := range found {
		all = append(all, o.Before...)
	}
	return all
}

func off(t *testing.T, k *Keeper, id string, devices []fault.Offload) []fault.Offload {
	t.Helper()
	done, err := k.Off(t.Context(), id, devices)
	if err != nil {
		t.Fatal(err)
	}
	return done
}

// restore is Restore; it returns the devices that are gone.
func restore(t *testing.T, k *Keeper, id string) []fault.Offload {
	t.Helper()
	gone, err := k.Restore(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

// noRecords checks that the folder went with its last record.
func noRecords(t *testing.T, k *Keeper) {
	t.Helper()
	if _, err := os.Stat(k.dir); !errors.Is(err, fs.ErrNotExist) {
		files, _ := filepath.Glob(k.dir + "/*")
		t.Errorf("the folder of the records is still there: %v, %v", err, files)
	}
}

func keeper(t *testing.T) *Keeper { return New(filepath.Join(t.TempDir(), "offload")) }

// storm switches off and on until the process is killed.
func storm(dir, namespace string) {
	k := New(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := 0; ctx.Err() == nil; i++ {
		id := fmt.Sprint("kqv", i%2) // two faults, one behind the other
		found, err := k.Read(ctx, []target.Place{{Namespace: namespace, Device: "v0"}})
		if err == nil {
			_, err = k.Off(ctx, id, found)
		}
		if err == nil {
			_, err = k.Restore(ctx, fmt.Sprint("kqv", (i+1)%2))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
}

func contains(all []string, want ...string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(all, w) })
}
