package verify

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is a lab of the test's own: client, wire and server, in a row.
type bench struct {
	client, wire, server string
	// to is where packets towards the server leave the wire, from where those from it
	// do; each selects the service.
	to, from target.Place
}

const (
	clientAddress, serverAddress = "10.98.0.1", "10.98.0.2"
	clientSix, serverSix         = "fd00:98::1", "fd00:98::2"
	servicePort                  = 5432
)

var benches atomic.Int32

func newBench(t testing.TB) *bench {
	t.Helper()
	testenv.Root(t)
	base := fmt.Sprintf("nt-verify-%d-%d-", os.Getpid(), benches.Add(1))
	b := &bench{client: base + "c", wire: base + "w", server: base + "s"}
	for _, name := range []string{b.client, b.wire, b.server} {
		if err := namespaces.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(name); err != nil {
				t.Error(err)
			}
		})
		b.links(t, name, func(h *netlink.Handle) error {
			lo, err := h.LinkByName("lo")
			if err != nil {
				return err
			}
			return h.LinkSetUp(lo)
		})
	}
	end := func(ns, name string, addresses ...string) namespaces.VethEnd {
		e := namespaces.VethEnd{Namespace: ns, Name: name, NoPrefixRoute: true}
		for _, a := range addresses {
			p := netip.MustParseAddr(a)
			e.Addresses = append(e.Addresses, netip.PrefixFrom(p, p.BitLen()))
		}
		return e
	}
	for _, pair := range [][2]namespaces.VethEnd{
		{end(b.client, "eth0", clientAddress, clientSix), end(b.wire, "client")},
		{end(b.server, "eth0", serverAddress, serverSix), end(b.wire, "server")},
	} {
		if err := namespaces.CreateVeth(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	b.forward(t)
	b.reach(t, b.client, "eth0", b.wire, "client", serverAddress, serverSix)
	b.reach(t, b.wire, "client", b.client, "eth0", clientAddress, clientSix)
	b.reach(t, b.wire, "server", b.server, "eth0", serverAddress, serverSix)
	b.reach(t, b.server, "eth0", b.wire, "server", clientAddress, clientSix)
	b.to, b.from = b.at(t, b.wire, "server", target.Egress), b.at(t, b.wire, "client", target.Egress)
	b.to.Match = service(serverAddress)
	b.from.Match = b.to.Match.Reverse()
	return b
}

func service(address string) target.Match {
	a := netip.MustParseAddr(address)
	return target.Match{Include: []target.Flow{{
		Protocol: unix.IPPROTO_TCP, Destination: netip.PrefixFrom(a, a.BitLen()), DestinationPorts: target.Port(servicePort),
	}}}
}

func (b *bench) forward(t testing.TB) {
	t.Helper()
	err := namespaces.Do(t.Context(), b.wire, func() error {
		return errors.Join(
			os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0),
			os.WriteFile("/proc/sys/net/ipv6/conf/all/forwarding", []byte("1"), 0),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// reach adds permanent routes and neighbours, as a lab does.
func (b *bench) reach(t testing.TB, ns, name, otherNS, otherName string, addresses ...string) {
	t.Helper()
	var mac net.HardwareAddr
	b.links(t, otherNS, func(h *netlink.Handle) error {
		l, err := h.LinkByName(otherName)
		if err == nil {
			mac = l.Attrs().HardwareAddr
		}
		return err
	})
	b.links(t, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		var errs []error
		for _, a := range addresses {
			ip := net.ParseIP(a)
			bits := 128
			if ip.To4() != nil {
				ip, bits = ip.To4(), 32
			}
			errs = append(errs,
				h.RouteReplace(&netlink.Route{LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}}),
				h.NeighSet(&netlink.Neigh{LinkIndex: l.Attrs().Index, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: mac}))
		}
		return errors.Join(errs...)
	})
}

func (b *bench) links(t testing.TB, ns string, f func(*netlink.Handle) error) {
	t.Helper()
	if err := inside(context.Background(), ns, f); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) at(t testing.TB, ns, device string, hook target.Hook) target.Place {
	t.Helper()
	p := target.Place{Namespace: ns, Device: device, Hook: hook, Owned: true}
	b.links(t, ns, func(h *netlink.Handle) error {
		l, err := h.LinkByName(device)
		if err == nil {
			p.Index = l.Attrs().Index
		}
		return err
	})
	return p
}

// toServer are the ends of the path to the server, fromServer those of the way back.
func (b *bench) toServer() *Ends   { return &Ends{b.client, b.server, "eth0"} }
func (b *bench) fromServer() *Ends { return &Ends{b.server, b.client, "eth0"} }

// counter reads one number of /proc/net/snmp or netstat in a namespace.
func (b *bench) counter(t testing.TB, ns, file, group, name string) int {
	t.Helper()
	var text []byte
	err := namespaces.Do(t.Context(), ns, func() (err error) {
		text, err = os.ReadFile(filepath.Join("/proc/thread-self/net", file))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		switch {
		case fields[0] != group+":":
		case names == nil:
			names = fields
		default:
			for i, n := range names {
				if n == name {
					v, err := strconv.Atoi(fields[i])
					if err != nil {
						t.Fatal(err)
					}
					return v
				}
			}
		}
	}
	t.Fatalf("no %s %s in %s", group, name, file)
	return 0
}
