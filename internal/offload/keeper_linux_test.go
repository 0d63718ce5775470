package offload

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
)

// someOff gives the device a state that is not the kernel's default: one feature off
// before, and a limit of segments.
func someOff(t *testing.T, namespace, device string) {
	t.Helper()
	n, err := openNamespace(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	l, err := n.linkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.tool.set(l.Attrs().Index, map[string]bool{"tx-tcp6-segmentation": false, "rx-udp-gro-forwarding": true}); err != nil {
		t.Fatal(err)
	}
	ip(t, "-n", namespace, "link", "set", device, "gso_max_segs", "40")
}

func TestOffAndRestore(t *testing.T) {
	a, b := pair(t)
	someOff(t, a, "v0")
	before := dump(t, a, b)
	k := keeper(t)
	found := read(t, k, a, "v0", false)
	unchanged(t, "after Read", before, a, b)
	if len(found) != 2 || found[0].Device != "v0" || found[1].Namespace != b || found[1].Device != "v1" {
		t.Fatalf("read: %+v, want v0 and its peer v1", found)
	}
	if !contains(found[0].Before, "tx-tcp-segmentation", "tx-generic-segmentation", "rx-udp-gro-forwarding", GSOMaxSegs) || contains(found[0].Before, "tx-tcp6-segmentation") {
		t.Errorf("v0 has %q", found[0].Before)
	}
	done := off(t, k, "kqv1", found)
	for i, o := range done {
		if diff := cmp.Diff(found[i].Before, o.Before); diff != "" {
			t.Errorf("%s: before (-read +off):\n%s", o.Device, diff)
		}
		if diff := cmp.Diff(o.Before, o.Off); diff != "" {
			t.Errorf("%s: not all is off (-before +off):\n%s", o.Device, diff)
		}
	}
	if still := on(read(t, k, a, "v0", false)); len(still) > 0 {
		t.Errorf("on after Off: %q", still)
	}
	info, err := os.Stat(filepath.Join(k.dir, "kqv1.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("record: %v, %v, want one of mode 0600", info, err)
	}
	for range 2 {
		restore(t, k, "kqv1")
		unchanged(t, "after Restore", before, a, b)
	}
	noRecords(t, k)
}

func TestTwoFaultsOnOneDevice(t *testing.T) {
	for _, order := range [][]string{{"kqv1", "kqv2"}, {"kqv2", "kqv1"}} {
		a, b := pair(t)
		someOff(t, b, "v1")
		before := dump(t, a, b)
		k := keeper(t)
		first := off(t, k, "kqv1", read(t, k, a, "v0", false))
		// The second finds nothing on, and holds it off all the same.
		second := off(t, k, "kqv2", read(t, k, b, "v1", false))
		if len(second) != 2 || cmp.Diff(first[0].Before, second[1].Before) != "" || cmp.Diff(first[1].Off, second[0].Off) != "" {
			t.Errorf("first %+v, second %+v, want the same of both devices", first, second)
		}
		restore(t, k, order[0])
		if still := on(read(t, k, a, "v0", false)); len(still) > 0 {
			t.Errorf("on after %s of two: %q", order[0], still)
		}
		restore(t, k, order[1])
		unchanged(t, fmt.Sprint("after ", order), before, a, b)
		noRecords(t, k)
	}
}

// TestOneFaultTwice adds a device to a fault, as a new address of its host name may.
func TestOneFaultTwice(t *testing.T) {
	a, b := pair(t)
	c, d := pair(t)
	before := dump(t, a, b, c, d)
	k := keeper(t)
	off(t, k, "kqv1", read(t, k, a, "v0", false))
	off(t, k, "kqv1", append(read(t, k, a, "v0", false), read(t, k, c, "v0", false)...))
	if still := on(append(read(t, k, a, "v0", false), read(t, k, c, "v0", false)...)); len(still) > 0 {
		t.Errorf("on: %q", still)
	}
	restore(t, k, "kqv1")
	unchanged(t, "after Restore", before, a, b, c, d)
}

func TestOffThatFailsChangesNothing(t *testing.T) {
	a, b := pair(t)
	before := dump(t, a, b)
	k := keeper(t)
	found := read(t, k, a, "v0", false)
	found = append(found, fault.Offload{Namespace: a, Device: "v9"})
	if _, err := k.Off(t.Context(), "kqv1", found); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("off with a device that is not there: %v", err)
	}
	unchanged(t, "after a failed Off", before, a, b)
	noRecords(t, k)
	for _, id := range []string{"", "..", "a/b", ".x"} {
		if _, err := k.Off(t.Context(), id, found[:2]); err == nil {
			t.Errorf("off for id %q was taken", id)
		}
	}
	unchanged(t, "after bad ids", before, a, b)

	// A fault that holds the device keeps holding it.
	off(t, k, "kqv2", found[:2])
	if _, err := k.Off(t.Context(), "kqv1", found); err == nil {
		t.Error("off with a device that is not there was taken")
	}
	if still := on(read(t, k, a, "v0", false)); len(still) > 0 {
		t.Errorf("on: %q", still)
	}
	restore(t, k, "kqv2")
	unchanged(t, "in the end", before, a, b)
}

// TestRepairAfterEachStep restores from what a crash leaves: the record alone, one
// device of two changed, both changed, a record half-written.
func TestRepairAfterEachStep(t *testing.T) {
	for steps := range 3 {
		t.Run(fmt.Sprint(steps), func(t *testing.T) {
			a, b := pair(t)
			before := dump(t, a, b)
			k := keeper(t)
			in := opened{}
			defer in.close()
			r, _, err := plan(t.Context(), in, "kqv1", read(t, k, a, "v0", false), nil)
			if err != nil || len(r.Devices) != 2 {
				t.Fatalf("plan: %+v, %v", r, err)
			}
			if err := k.save(r); err != nil {
				t.Fatal(err)
			}
			for _, c := range r.Devices[:steps] {
				if err := in[c.Namespace].switchOff(c); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(k.dir, ".kqv2.json"), []byte(`{"schemaV`), 0o600); err != nil {
				t.Fatal(err)
			}
			// The peer has another name meanwhile.
			rename(t, b, "v1", "other")
			back, gone, err := New(k.dir).Repair(t.Context())
			if err != nil || len(back) != 2 || len(gone) != 0 {
				t.Fatalf("switched back %+v, gone %+v, %v, want both devices back", back, gone, err)
			}
			rename(t, b, "other", "v1")
			unchanged(t, "after Repair", before, a, b)
			noRecords(t, k)
		})
	}
}

// TestRepairAfterSIGKILL kills a process that switches off and on all the time, at
// different moments.
func TestRepairAfterSIGKILL(t *testing.T) {
	a, b := pair(t)
	someOff(t, a, "v0")
	before := dump(t, a, b)
	k := keeper(t)
	left := 0
	for i := range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), stormEnv+"="+k.dir+"|"+a)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if files, _ := os.ReadDir(k.dir); len(files) > 0 {
				break
			}
		}
		time.Sleep(time.Duration(i*i) * 500 * time.Microsecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if cmd.ProcessState.Exited() {
			t.Fatal("the storm ended by itself")
		}
		if cmp.Diff(before, dump(t, a, b)) != "" {
			left++
		}
		if _, _, err := New(k.dir).Repair(t.Context()); err != nil {
			t.Fatal(err)
		}
		unchanged(t, fmt.Sprintf("after kill %d and Repair", i), before, a, b)
		noRecords(t, k)
	}
	if left == 0 {
		t.Error("no kill left anything switched off: the test shows nothing")
	}
}

// TestIdentity: what took the place of a device or a namespace is not touched.
func TestIdentity(t *testing.T) {
	a, b := pair(t)
	k := keeper(t)
	off(t, k, "kqv1", read(t, k, a, "v0", false))
	if err := namespaces.Delete(b); err != nil {
		t.Fatal(err)
	}
	// The pair went with its end in b, once the kernel has got to it.
	n, err := openNamespace(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := n.links.LinkByName("v0"); err != nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("v0 is still there")
		}
	}
	n.close()
	if err := namespaces.Create(b); err != nil {
		t.Fatal(err)
	}
	veth(t, namespaces.VethEnd{Namespace: a, Name: "v0"}, namespaces.VethEnd{Namespace: b, Name: "v1"})
	for name, device := range map[string]string{a: "v0", b: "v1"} {
		someOff(t, name, device)
		ip(t, "-n", name, "link", "set", device, "gso_max_segs", "1")
	}
	before := dump(t, a, b)
	if gone := restore(t, k, "kqv1"); len(gone) != 2 || gone[0].Device != "v0" || gone[1].Device != "v1" {
		t.Errorf("gone: %+v, want v0 and v1", gone)
	}
	unchanged(t, "after Restore of devices that are gone", before, a, b)
	noRecords(t, k)

	index := 0
	if n, err = openNamespace(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if l, err := n.links.LinkByName("v0"); err == nil {
		index = l.Attrs().Index
	}
	defer n.close()
	if _, err := k.Read(t.Context(), []target.Place{{Namespace: a, Device: "v0", Index: index, Cookie: n.cookie + 1}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read with another namespace's cookie: %v", err)
	}
	if _, err := k.Read(t.Context(), []target.Place{{Namespace: a, Device: "v0", Index: index + 77, Cookie: n.cookie}}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read of an index that is not there: %v", err)
	}
}

// TestNamesThatChangeBeforeOff: what was read is switched off, not what has its name by
// then, and comes back under whatever name it has then.
func TestNamesThatChangeBeforeOff(t *testing.T) {
	a, b := pair(t)
	veth(t, namespaces.VethEnd{Namespace: a, Name: "w0"}, namespaces.VethEnd{Namespace: b, Name: "w1"})
	k := keeper(t)
	found := read(t, k, a, "v0", false)
	swap := func() {
		rename(t, a, "v0", "x0")
		rename(t, a, "w0", "v0")
		rename(t, a, "x0", "w0")
	}
	swap()
	before := dump(t, a, b)
	done := off(t, k, "kqv1", found)
	if still := on(read(t, k, a, "w0", false)); len(still) > 0 || done[0].Device != "w0" || done[0].Index != found[0].Index {
		t.Errorf("still on %q; off: %+v, want the device that was read, w0 now", still, done)
	}
	if got := on(read(t, k, a, "v0", false)); len(got) == 0 {
		t.Error("what has the name now was switched off")
	}
	swap()
	restore(t, k, "kqv1")
	swap()
	unchanged(t, "after Restore", before, a, b)
	noRecords(t, k)

	ip(t, "-n", a, "link", "del", "w0")
	if _, err := k.Off(t.Context(), "kqv1", found); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("off at a device that is gone: %v", err)
	}
	noRecords(t, k)
}

// TestRenamedNamespace: the namespace is found by its cookie under another name.
func TestRenamedNamespace(t *testing.T) {
	a, b := pair(t)
	before := dump(t, b)
	k := keeper(t)
	off(t, k, "kqv1", read(t, k, a, "v0", false))
	other := space(t)
	if err := namespaces.Delete(other); err != nil {
		t.Fatal(err)
	}
	move(t, b, other)
	restore(t, k, "kqv1")
	move(t, other, b)
	unchanged(t, "after Restore under another name", before, b)
	noRecords(t, k)
}

// move gives a namespace another name.
func move(t *testing.T, from, to string) {
	t.Helper()
	sleep := exec.Command("sleep", "60")
	if err := namespaces.Start(from, sleep); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	ip(t, "netns", "attach", to, fmt.Sprint(sleep.Process.Pid))
	if err := namespaces.Delete(from); err != nil {
		t.Fatal(err)
	}
}

// TestPeers: peers are found by number, whatever they are called, and a place of ours
// brings its whole link.
func TestPeers(t *testing.T) {
	wire, client, server, other := space(t), space(t), space(t), space(t)
	// The numbers of devices and namespaces are mixed up on purpose.
	veth(t, namespaces.VethEnd{Namespace: other, Name: "eth0"}, namespaces.VethEnd{Namespace: wire, Name: "spare"})
	ip(t, "-n", wire, "link", "del", "spare")
	veth(t, namespaces.VethEnd{Namespace: wire, Name: "server"}, namespaces.VethEnd{Namespace: server, Name: "eth0"})
	veth(t, namespaces.VethEnd{Namespace: other, Name: "eth1"}, namespaces.VethEnd{Namespace: other, Name: "eth0"})
	veth(t, namespaces.VethEnd{Namespace: wire, Name: "client"}, namespaces.VethEnd{Namespace: client, Name: "eth0"})
	ip(t, "-n", server, "link", "set", "eth0", "down")
	ip(t, "-n", server, "link", "set", "eth0", "name", "renamed")

	type where struct{ Namespace, Device string }
	got := func(namespace, device string, owned bool) []where {
		var all []where
		for _, o := range read(t, keeper(t), namespace, device, owned) {
			all = append(all, where{o.Namespace, o.Device})
		}
		return all
	}
	for _, tt := range []struct {
		namespace, device string
		owned             bool
		want              []where
	}{
		{wire, "server", false, []where{{wire, "server"}, {server, "renamed"}}},
		{wire, "server", true, []where{{wire, "server"}, {server, "renamed"}, {wire, "client"}, {client, "eth0"}}},
		{client, "eth0", false, []where{{client, "eth0"}, {wire, "client"}}},
		{other, "eth1", false, []where{{other, "eth1"}, {other, "eth0"}}},
		{wire, "lo", false, []where{{wire, "lo"}}},
	} {
		if diff := cmp.Diff(tt.want, got(tt.namespace, tt.device, tt.owned)); diff != "" {
			t.Errorf("%s in %s, owned %v (-want +got):\n%s", tt.device, tt.namespace, tt.owned, diff)
		}
	}
	// Both directions of a fault are two places with the same devices.
	both, err := keeper(t).Read(t.Context(), []target.Place{
		{Namespace: wire, Device: "server", Hook: target.Egress, Owned: true},
		{Namespace: wire, Device: "client", Hook: target.Egress, Owned: true},
	})
	if err != nil || len(both) != 4 {
		t.Errorf("both directions: %+v, %v, want 4 devices", both, err)
	}
}

// TestPeerWithoutName: an end in a namespace that has no name is left out.
func TestPeerWithoutName(t *testing.T) {
	a, b := pair(t)
	sleep := exec.Command("sleep", "60")
	if err := namespaces.Start(b, sleep); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = sleep.Process.Kill(); _ = sleep.Wait() }()
	if err := namespaces.Delete(b); err != nil {
		t.Fatal(err)
	}
	k := keeper(t)
	before := dump(t, a)
	found := read(t, k, a, "v0", false)
	if len(found) != 1 || found[0].Device != "v0" {
		t.Errorf("read: %+v, want v0 alone", found)
	}
	off(t, k, "kqv1", found)
	restore(t, k, "kqv1")
	unchanged(t, "after Restore", before, a)
}

// TestSegmentsOfSomebodyElse: a limit that was set meanwhile is kept.
func TestSegmentsOfSomebodyElse(t *testing.T) {
	a, _ := pair(t)
	k := keeper(t)
	off(t, k, "kqv1", read(t, k, a, "v0", false))
	ip(t, "-n", a, "link", "set", "v0", "gso_max_segs", "7")
	restore(t, k, "kqv1")
	n, err := openNamespace(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	var l netlink.Link
	if l, err = n.linkByName("v0"); err != nil || l.Attrs().GSOMaxSegs != 7 {
		t.Errorf("%s is %d, %v, want 7", GSOMaxSegs, l.Attrs().GSOMaxSegs, err)
	}
}
