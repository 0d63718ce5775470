package namespaces

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
)

func prefixes(t testing.TB, texts ...string) []netip.Prefix {
	t.Helper()
	var ps []netip.Prefix
	for _, s := range texts {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	return ps
}

// devices returns the names of the devices in a namespace, with a space between.
func devices(t testing.TB, name string) string {
	t.Helper()
	h, err := handle(name)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	links, err := h.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		names = append(names, l.Attrs().Name)
	}
	return strings.Join(names, " ")
}

func TestCreateVeth(t *testing.T) {
	a, b := create(t), create(t)
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	err := CreateVeth(
		VethEnd{Namespace: a, Name: "exactly-15-byte", HardwareAddress: mac, Alias: "an alias", Addresses: prefixes(t, "10.78.251.1/32", "fd00:78::1/64"), NoPrefixRoute: true},
		VethEnd{Namespace: b, Name: "eth0", Addresses: prefixes(t, "10.78.251.2/24")},
	)
	if err != nil {
		t.Fatal(err)
	}
	// What a person reads: ip's own words.
	got := ip(t, "-n", a, "-o", "addr", "show", "dev", "exactly-15-byte")
	for _, want := range []string{"inet 10.78.251.1/32 scope global noprefixroute", "inet6 fd00:78::1/64 scope global nodad noprefixroute"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	for line := range strings.Lines(got) { // fe80:: is the kernel's own
		if strings.Contains(line, "fd00:") && strings.Contains(line, "tentative") {
			t.Errorf("duplicate address detection: %s", line)
		}
	}
	got = ip(t, "-n", a, "link", "show", "dev", "exactly-15-byte")
	for _, want := range []string{"02:00:00:00:00:01", "alias an alias", "UP"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in %s", want, got)
		}
	}
	if got := ip(t, "-n", a, "-4", "route"); got != "" {
		t.Errorf("routes in spite of noprefixroute: %s", got)
	}
	if got := ip(t, "-n", b, "-4", "route"); !strings.Contains(got, "10.78.251.0/24 dev eth0") {
		t.Errorf("no route for the prefix: %s", got)
	}

	err = CreateVeth(VethEnd{Namespace: a, Name: "other"}, VethEnd{Namespace: b, Name: "eth0"})
	if !errors.Is(err, fs.ErrExist) {
		t.Errorf("a taken name: %v, want fs.ErrExist", err)
	}
	// An address that the kernel refuses: the pair goes again.
	bad := prefixes(t, "10.78.252.1/24", "10.78.252.1/24")
	if err := CreateVeth(VethEnd{Namespace: a, Name: "v1", Addresses: bad}, VethEnd{Namespace: b, Name: "v1"}); err == nil {
		t.Error("an address twice was taken")
	}
	if diff := cmp.Diff([]string{"lo exactly-15-byte", "lo eth0"}, []string{devices(t, a), devices(t, b)}); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

// TestCreateVethUnseen watches the process's own namespace while pairs are made between
// others: udev, network managers and people there must not see them for a moment. It
// does so in a process of its own, whose namespace may be changed.
func TestCreateVethUnseen(t *testing.T) {
	const variable = "NT_NS_UNSEEN"
	if ends := strings.Split(os.Getenv(variable), ","); len(ends) == 2 {
		watchCreateVeth(t, ends[0], ends[1])
		return
	}
	a, b, own := create(t), create(t), create(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestCreateVethUnseen$", "-test.v")
	cmd.Env = append(os.Environ(), variable+"="+a+","+b)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := Start(own, cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), "watched") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func watchCreateVeth(t *testing.T, a, b string) {
	updates, done := make(chan netlink.LinkUpdate, 100), make(chan struct{})
	defer close(done)
	if err := netlink.LinkSubscribe(updates, done); err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		name := fmt.Sprintf("unseen%d", i)
		if err := CreateVeth(VethEnd{Namespace: a, Name: name}, VethEnd{Namespace: b, Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	// What is seen ends the watch.
	if err := CreateVeth(VethEnd{Name: "seen"}, VethEnd{Namespace: a, Name: "far"}); err != nil {
		t.Fatal(err)
	}
	for u := range updates {
		switch name := u.Attrs().Name; {
		case strings.HasPrefix(name, "unseen"):
			t.Errorf("%s was seen", name)
		case name == "seen":
			t.Log("watched")
			return
		}
	}
	t.Error("the watch ended")
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}
