package target

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestResolve(t *testing.T) {
	testenv.Root(t)
	name := func(s string) string { return fmt.Sprintf("nt-target-%d-%s", os.Getpid(), s) }
	a, b := name("a"), name("b")
	for _, ns := range []string{a, b} {
		if err := namespaces.Create(ns); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = namespaces.Delete(ns) })
	}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: a, Name: "v0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.1/24")}},
		namespaces.VethEnd{Namespace: b, Name: "v1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.78.0.2/24")}})
	if err != nil {
		t.Fatal(err)
	}
	err = namespaces.CreateVeth(namespaces.VethEnd{Namespace: a, Name: "netemq0"}, namespaces.VethEnd{Namespace: b, Name: "ntm0123456789a"})
	if err != nil {
		t.Fatal(err)
	}
	n, err := namespaces.Open(a)
	if err != nil {
		t.Fatal(err)
	}
	cookie, err := n.Cookie()
	if err := errors.Join(err, n.Close()); err != nil {
		t.Fatal(err)
	}

	got, err := Resolve(t.Context(), Selector{Namespace: a, Device: "v0", Protocol: 6, PeerPorts: []Ports{Port(80)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.To.Index == 0 || got.To.Cookie != cookie || got.To.Device != "v0" || got.To.Owned ||
		got.To.Hook != Egress || got.From.Hook != Ingress || got.From.Index != got.To.Index || got.From.Cookie != cookie {
		t.Errorf("places %+v and %+v, cookie %d", got.To, got.From, cookie)
	}
	if got.To.Match.String() != "tcp to port 80" || got.From.Match.String() != "tcp from port 80" {
		t.Errorf("to %s, from %s", got.To.Match, got.From.Match)
	}

	lo, err := Resolve(t.Context(), Selector{Namespace: a, Device: "lo"}, nil)
	if err != nil || lo.From.Hook != Egress || lo.TellApart() == nil {
		t.Errorf("loopback: %+v, %v, told apart: %v", lo, err, lo.TellApart())
	}

	var field *qdisc.FieldError
	_, err = Resolve(t.Context(), Selector{Namespace: a, Device: "eth7"}, nil)
	if !errors.As(err, &field) || field.Field != "dev" || !strings.Contains(field.Want, "lo, v0") {
		t.Errorf("unknown device: %v, want the devices that there are", err)
	}
	for _, ns := range []string{a, b} {
		if _, err := Resolve(t.Context(), Selector{Namespace: ns, Device: "eth7"}, nil); err == nil || strings.Contains(err.Error(), "netemq0") || strings.Contains(err.Error(), "ntm") {
			t.Errorf("unknown device: %v offers netemd's own", err)
		}
	}
	_, err = Resolve(t.Context(), Selector{Namespace: name("none"), Device: "v0"}, nil)
	if !errors.As(err, &field) || field.Field != "netns" {
		t.Errorf("unknown namespace: %v", err)
	}
	stale := name("stale")
	path := filepath.Join(namespaces.Dir, stale)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(path) })
	_, err = Resolve(t.Context(), Selector{Namespace: stale, Device: "v0"}, nil)
	if !errors.Is(err, namespaces.ErrStale) || !strings.Contains(err.Error(), "not a network namespace (nsfs): stale file") {
		t.Errorf("stale file: %v", err)
	}
	// Nobody is told which files there are where only root may look.
	var said []string
	for _, file := range []string{path, path + "-gone", path + "/below"} {
		_, err := Resolve(t.Context(), Selector{Namespace: file, Device: "v0"}, nil)
		if err == nil || !errors.Is(err, qdisc.ErrInvalid) {
			t.Fatalf("%s: %v", file, err)
		}
		said = append(said, strings.ReplaceAll(err.Error(), file, "PATH"))
	}
	if said[0] != said[1] || said[0] != said[2] {
		t.Errorf("files and none are told apart: %q", said)
	}
	own, err := Resolve(t.Context(), Selector{Device: "lo"}, nil)
	if err != nil || own.To.Index != 1 || own.To.Cookie == cookie {
		t.Errorf("the own namespace's loopback: %+v, %v", own.To, err)
	}
}

func TestReadable(t *testing.T) {
	remote := func(s string) *netlink.Gretun {
		return &netlink.Gretun{LinkAttrs: netlink.LinkAttrs{Name: "gre1"}, Remote: net.ParseIP(s)}
	}
	flows := remote("0.0.0.0")
	flows.FlowBased = true
	for _, l := range []netlink.Link{&netlink.Veth{}, &netlink.Gretap{}, remote("192.0.2.1"), remote("2001:db8::1"), remote("ff02::1"), flows} {
		if err := readable(l); err != nil {
			t.Errorf("%T %+v: %v", l, l, err)
		}
	}
	for _, l := range []*netlink.Gretun{remote(""), remote("0.0.0.0"), remote("224.0.0.9"), remote("::")} {
		if err := readable(l); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "gre1 is a GRE device without one remote end") {
			t.Errorf("remote %v: %v", l.Remote, err)
		}
	}
}
