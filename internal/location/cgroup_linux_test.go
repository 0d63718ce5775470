package location

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

var hosts atomic.Int32

// host is a namespace with v0, of which the default route leaves by that where it is said,
// and w0 beside it.
func host(t *testing.T, defaults ...string) string {
	t.Helper()
	testenv.Root(t)
	base := fmt.Sprintf("nt-location-%d-c%d", os.Getpid(), hosts.Add(1))
	for _, name := range []string{base, base + "-peer"} {
		if err := namespaces.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(name); err != nil {
				t.Error(err)
			}
		})
	}
	for i, name := range []string{"v0", "w0"} {
		err := namespaces.CreateVeth(
			namespaces.VethEnd{Namespace: base, Name: name, Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 80, byte(i), 1}), 24)}},
			namespaces.VethEnd{Namespace: base + "-peer", Name: name, Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 80, byte(i), 2}), 24)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	err := namespaces.Do(t.Context(), base, func() error {
		for metric, name := range defaults {
			link, err := netlink.LinkByName(name)
			if err == nil {
				via := net.IPv4(10, 80, map[string]byte{"v0": 0, "w0": 1}[name], 2)
				err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: via, Priority: 100 - 10*metric})
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return base
}

// The processes of a group or a unit are found by its path or name; their packets pass the
// device that is said, or the one of the default route, never lo by itself.
func TestFindCgroup(t *testing.T) {
	name := fmt.Sprintf("nt%d", os.Getpid())
	g := testenv.NewCgroup(t, "loc/system.slice/"+name+"-one.service")
	testenv.NewCgroup(t, "loc/system.slice/"+name+"-two.service")
	testenv.NewCgroup(t, "loc/user.slice/"+name+"-two.service")
	without, one, two := host(t), host(t, "w0"), host(t, "v0", "w0")
	port := []target.Ports{target.Port(5432)}
	for _, tt := range []struct {
		name   string
		d      target.Definition
		device string
		match  string // of packets to it
		err    string
	}{
		{"a path", target.Definition{Cgroup: g.Path, Namespace: one}, "w0", "to cgroup " + g.Path, ""},
		{"a path and a port", target.Definition{Cgroup: g.Path, Namespace: one, Ports: port, Protocol: 6}, "w0", "tcp to cgroup " + g.Path + " to port 5432", ""},
		{"a unit", target.Definition{Unit: name + "-one.service", Namespace: one}, "w0", "to cgroup " + g.Path, ""},
		{"a unit without its kind", target.Definition{Unit: name + "-one", Namespace: one}, "w0", "to cgroup " + g.Path, ""},
		{"the lowest metric", target.Definition{Cgroup: g.Path, Namespace: two}, "w0", "to cgroup " + g.Path, ""},
		{"a device that is said", target.Definition{Cgroup: g.Path, Namespace: two, Device: "v0"}, "v0", "to cgroup " + g.Path, ""},
		{"lo, when it is said", target.Definition{Cgroup: g.Path, Namespace: one, Device: "lo"}, "lo", "to cgroup " + g.Path, ""},

		{"no default route", target.Definition{Cgroup: g.Path, Namespace: without}, "", "", "device: want the device that the packets pass"},
		{"no such path", target.Definition{Cgroup: g.Path + "/none", Namespace: one}, "", "", "want a cgroup that exists; there is none below " + g.Path},
		{"no such path beside others", target.Definition{Cgroup: filepath.Dir(g.Path) + "/none", Namespace: one}, "", "", "want a cgroup that exists: " + g.Path},
		{"a file", target.Definition{Cgroup: g.Path + "/cgroup.procs", Namespace: one}, "", "", "want a cgroup that exists"},
		{"two units", target.Definition{Unit: name + "-two.service", Namespace: one}, "", "", "want one of them, as cgroup:PATH: "},
		{"no such unit", target.Definition{Unit: name + "-none.service", Namespace: one}, "", "", name + "-one.service, "},
		{"no such device", target.Definition{Cgroup: g.Path, Namespace: one, Device: "x0"}, "", "", "want a device that exists in netns"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, err := Finder{}.Find(t.Context(), tt.d)
			if tt.err != "" {
				vanished := strings.HasPrefix(tt.name, "no such path") || tt.name == "no such unit" || tt.name == "a file"
				if err == nil || !strings.Contains(err.Error(), tt.err) || errors.Is(err, target.ErrVanished) != vanished || errors.Is(err, qdisc.ErrInvalid) == vanished {
					t.Errorf("%v, want %q, vanished %t", err, tt.err, vanished)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			hook := target.Ingress
			if tt.device == "lo" {
				hook = target.Egress
			}
			if to := found.To; to.Device != tt.device || to.Hook != hook || to.Match.String() != tt.match || to.Namespace != tt.d.Namespace || to.Cookie == 0 {
				t.Errorf("to: %s, %s; want %s of %s, %s", to, to.Match, hook, tt.device, tt.match)
			}
			if from := found.From; from.Hook != target.Egress || from.Match.Key() != found.To.Match.Reverse().Key() {
				t.Errorf("from: %s, %s", from, from.Match)
			}
			if err := found.Standing(); err != nil {
				t.Errorf("it stands: %v", err)
			}
		})
	}
	found, err := Finder{}.Find(t.Context(), target.Definition{Cgroup: g.Path, Namespace: one})
	if err != nil {
		t.Fatal(err)
	}
	g.Remove(t)
	if err := found.Standing(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
	g.Make(t)
	if err := found.Standing(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "made anew") {
		t.Errorf("made anew: %v", err)
	}
}
