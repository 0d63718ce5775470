package match

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

// groupOf is g as a match names it. Level and number are read another way than the product
// does: by the inode, which on 64-bit machines is the number.
func groupOf(t *testing.T, g *testenv.Cgroup) target.Cgroup {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(g.Dir, &st); err != nil {
		t.Fatal(err)
	}
	return target.Cgroup{Path: g.Path, ID: st.Ino, Level: strings.Count(g.Path, "/")}
}

// levels are the numbers from the root down to g.
func levels(t *testing.T, g *testenv.Cgroup) []uint64 {
	t.Helper()
	root := strings.TrimSuffix(g.Dir, g.Path)
	var ids []uint64
	for dir := g.Dir; ; dir = filepath.Dir(dir) {
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			t.Fatal(err)
		}
		ids = append([]uint64{st.Ino}, ids...)
		if dir == root {
			return ids
		}
	}
}

// inside runs f in a namespace of its own with lo up.
func inside(t *testing.T, f func()) {
	t.Helper()
	fd := testenv.Namespace(t)
	err := namespaces.Do(t.Context(), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), func() error {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			f()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The kernel finds the receiver's cgroup as the Go meaning has it from who made the sockets:
// of listeners, of bound and connected UDP sockets, of accepted connections, of both families.
func TestReceiver(t *testing.T) {
	testenv.Root(t)
	a := testenv.NewCgroup(t, "a/mid")
	below := testenv.NewCgroup(t, "a/mid/below")
	other := testenv.NewCgroup(t, "other/mid")
	inside(t, func() {
		type server struct {
			port     uint16
			protocol uint8
			group    *testenv.Cgroup
		}
		var servers []server
		listener := -1
		for i, g := range []*testenv.Cgroup{a, below, other, nil} {
			open := func() {
				tcp, udp := uint16(4000+i), uint16(5000+i)
				fd := listen(t, unix.SOCK_STREAM, tcp)
				listen(t, unix.SOCK_DGRAM, udp)
				servers = append(servers, server{tcp, protoTCP, g}, server{udp, protoUDP, g})
				if g == a {
					listener = fd
				}
			}
			if g == nil {
				open()
			} else {
				g.Run(t, open)
			}
		}
		client := accepted(t, listener, 4000)
		if t.Failed() {
			return
		}
		loop4, loop6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")
		for _, want := range []struct {
			name string
			flow target.Flow
		}{
			{"mid", target.Flow{DestinationCgroup: groupOf(t, a)}},
			{"below", target.Flow{DestinationCgroup: groupOf(t, below)}},
			{"mid, TCP", target.Flow{Protocol: protoTCP, DestinationCgroup: groupOf(t, a)}},
			{"mid, UDP and ports", target.Flow{Protocol: protoUDP, DestinationPorts: target.Ports{First: 5000, Last: 5001}, DestinationCgroup: groupOf(t, a)}},
		} {
			m := include(want.flow)
			prog := load(t, m, 14)
			for _, s := range servers {
				for _, ip := range []netip.Addr{loop4, loop6} {
					var ends Ends
					if s.group != nil {
						ends.Receiver = levels(t, s.group)
					}
					f := frame{source: ip, destination: ip, protocol: s.protocol, payload: append(ports(1000, s.port), make([]byte, 16)...)}
					checkEnds(t, want.name, prog, m, ends, f)
				}
			}
			// An accepted connection, its packets of both directions, a fragment, and a protocol
			// that nobody looks up.
			member := Ends{Receiver: levels(t, a)}
			f := frame{source: client.Addr(), destination: loop4, protocol: protoTCP, payload: append(ports(client.Port(), 4000), make([]byte, 16)...)}
			checkEnds(t, want.name+", accepted", prog, m, member, f)
			f.payload = append(ports(4000, client.Port()), make([]byte, 16)...)
			checkEnds(t, want.name+", to the client", prog, m, Ends{}, f)
			f.fragment = 8
			checkEnds(t, want.name+", later fragment", prog, m, member, f)
			f.fragment, f.protocol = 0, protoSCTP
			checkEnds(t, want.name+", SCTP", prog, m, member, f)
		}
	})
}

func checkEnds(t *testing.T, name string, prog *ebpf.Program, m target.Match, ends Ends, f frame) {
	t.Helper()
	packet := f.bytes()
	want := ends.Selects(m, packet, 14)
	if got := runs(t, prog, packet); got != want {
		t.Errorf("%s: port %d, receiver %v: the program says %t, Go %t", name, binary.BigEndian.Uint16(f.payload[2:]), ends.Receiver, got, want)
	}
}

// The sender's cgroup is that of the packet's own socket, which the kernel's test run makes
// in the name of this process.
func TestSender(t *testing.T) {
	testenv.Root(t)
	a, other := testenv.NewCgroup(t, "s/mid"), testenv.NewCgroup(t, "t/mid")
	for _, tt := range []struct {
		name string
		in   *testenv.Cgroup
	}{{"member", a}, {"another", other}} {
		for _, m := range []target.Match{include(target.Flow{SourceCgroup: groupOf(t, a)}), exclude(target.Flow{Protocol: protoTCP, SourceCgroup: groupOf(t, a)})} {
			prog := load(t, m, 14)
			ends := Ends{Sender: levels(t, tt.in)}
			for _, f := range []frame{
				{source: a4, destination: b4, protocol: protoTCP, payload: ports(1000, 80)},
				{source: a6, destination: b6, protocol: protoUDP, payload: ports(1000, 80)},
				{source: a4, destination: b4, protocol: 1, payload: make([]byte, 8)},
				{kind: 0x88cc, payload: make([]byte, 46)},
			} {
				packet := f.bytes()
				var got bool
				tt.in.Run(t, func() { got = runs(t, prog, packet) })
				if want := ends.Selects(m, packet, 14); got != want {
					t.Errorf("%s: %s, protocol %d: the program says %t, Go %t", tt.name, m, f.protocol, got, want)
				}
			}
		}
	}
}

// listen opens a socket of both families that ends with the test.
func listen(t *testing.T, kind int, port uint16) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet6{Port: int(port)}); err != nil {
		t.Error(err)
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 8); err != nil {
			t.Error(err)
		}
	}
	return fd
}

// accepted connects to a listener and returns the client's end.
func accepted(t *testing.T, listener int, port uint16) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: int(port), Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Error(err)
	}
	server, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	if err != nil {
		t.Error(err)
	}
	t.Cleanup(func() { _ = unix.Close(server) })
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Error(err)
	}
	in4, ok := name.(*unix.SockaddrInet4)
	if !ok {
		t.Errorf("%T", name)
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom4(in4.Addr), uint16(in4.Port))
}
