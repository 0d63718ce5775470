package ebpf

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/cgroup"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// grouped are two groups of processes, and addresses at which both serve the same port.
type grouped struct {
	l             *lab
	member, other *testenv.Cgroup
	match         target.Match // of what member's processes send
}

func newGrouped(t *testing.T, l *lab, name string) grouped {
	g := grouped{l: l, member: testenv.NewCgroup(t, "ebpf/"+name), other: testenv.NewCgroup(t, "ebpf-other/"+name)}
	c, err := cgroup.Find(g.member.Path)
	if err != nil {
		t.Fatal(err)
	}
	g.match = target.Match{}.Of(c)
	return g
}

// A fault on a group hits what its processes send, and what goes to them, on a device and
// port that processes of another group have, too: of both families, of UDP and TCP.
func TestCgroup(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		g := newGrouped(t, l, "device")
		const second4, second6 = "10.99.0.3", "fd00:99::3"
		l.in(t, l.server, func() error {
			link, err := netlink.LinkByName("veth0")
			for _, a := range []string{second4 + "/24", second6 + "/64"} {
				if err == nil {
					err = netlink.AddrAdd(link, &netlink.Addr{IPNet: parseNet(t, a), Flags: 0x02}) // IFA_F_NODAD
				}
			}
			return err
		})
		for _, way := range []struct {
			name  string
			place target.Place
		}{
			{"from", target.Place{Namespace: l.server, Device: l.peer.Device, Index: l.peer.Index, Hook: target.Egress, Match: g.match}},
			{"to", target.Place{Namespace: l.server, Device: l.peer.Device, Index: l.peer.Index, Hook: target.Ingress, Match: g.match.Reverse()}},
		} {
			for family, addrs := range map[string][2]string{"IPv4": {server4, second4}, "IPv6": {server6, second6}} {
				if cfg.Clsact && family == "IPv6" {
					continue // the program is the same
				}
				t.Run(way.name+" "+family, func(t *testing.T) {
					var hit, spared *echo
					g.member.Run(t, func() { hit = g.serve(t, l.server, addrs[0]) })
					g.other.Run(t, func() { spared = g.serve(t, l.server, addrs[1]) })
					answers(t, "before", l.client, hit, true)
					set(t, e, way.place, qdisc.Netem{Loss: 100})
					answers(t, "the group", l.client, hit, false)
					answers(t, "the other group", l.client, spared, true)
					if c := counters(t, e, way.place); c.Lost == 0 || c.Lost != c.Seen {
						t.Errorf("counted %+v", c)
					}
					set(t, e, way.place, qdisc.Netem{Delay: 30 * time.Millisecond}) // through the queue, and back
					if took := answers(t, "the group, delayed", l.client, hit, true); took < 30*time.Millisecond {
						t.Errorf("%s: an answer after %s, want 30 ms later", way.name, took)
					}
					if err := e.Clear(ctx, way.place); err != nil {
						t.Fatal(err)
					}
					answers(t, "after", l.client, hit, true)
				})
			}
		}
	})
}

// On loopback every packet passes egress: what the group sends is told from what goes to it.
func TestCgroupOnLoopback(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	g := newGrouped(t, l, "lo")
	var hit, spared *echo
	g.member.Run(t, func() { hit = g.serve(t, l.server, "127.0.0.1") })
	g.other.Run(t, func() { spared = g.serve(t, l.server, "127.0.0.2") })
	lo := target.Place{Namespace: l.server, Device: "lo", Index: 1, Hook: target.Egress}
	from, to := lo, lo
	from.Match, to.Match = g.match, g.match.Reverse()
	if err := (target.Target{To: to, From: from}).TellApart(); err != nil {
		t.Errorf("both directions: %v", err)
	}
	for name, p := range map[string]target.Place{"from": from, "to": to} {
		t.Run(name, func(t *testing.T) {
			set(t, e, p, qdisc.Netem{Loss: 100})
			defer func() {
				if err := e.Clear(ctx, p); err != nil {
					t.Error(err)
				}
			}()
			sent := hit.received.Load()
			answers(t, "the group", l.server, hit, false)
			answers(t, "the other group", l.server, spared, true)
			if got := hit.received.Load() > sent; got != (name == "from") {
				t.Errorf("the group received the question: %t", got)
			}
		})
	}
}

// Both groups' processes may have opened a socket before they came there: what counts is
// where the socket was opened. A group below belongs to those above it.
func TestCgroupBelow(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	g := newGrouped(t, l, "above")
	below := testenv.NewCgroup(t, "ebpf/above/below/deep")
	beside := testenv.NewCgroup(t, "ebpf/beside")
	var hit, spared *echo
	below.Run(t, func() { hit = g.serve(t, l.server, server4) })
	beside.Run(t, func() { spared = g.serve(t, l.server, server6) })
	p := target.Place{Namespace: l.server, Device: l.peer.Device, Index: l.peer.Index, Hook: target.Ingress, Match: g.match.Reverse()}
	set(t, e, p, qdisc.Netem{Loss: 100})
	answers(t, "below", l.client, hit, false)
	answers(t, "beside", l.client, spared, true)
}

func parseNet(t *testing.T, s string) *net.IPNet {
	t.Helper()
	p, err := netip.ParsePrefix(s)
	if err != nil {
		t.Fatal(err)
	}
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// echo answers UDP and accepts TCP at one address and port.
type echo struct {
	addr     string
	received atomic.Int64
}

const echoPort = 4100

func (g grouped) serve(t *testing.T, ns, address string) *echo {
	t.Helper()
	s := &echo{addr: net.JoinHostPort(address, fmt.Sprint(echoPort))}
	var udp *net.UDPConn
	var tcp *net.TCPListener
	g.l.in(t, ns, func() (err error) {
		if udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address), Port: echoPort}); err == nil {
			tcp, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(address), Port: echoPort})
		}
		return err
	})
	done := make(chan struct{}, 2)
	go func() {
		defer func() { done <- struct{}{} }()
		b := make([]byte, 64)
		for {
			n, from, err := udp.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			s.received.Add(1)
			_, _ = udp.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	go func() {
		defer func() { done <- struct{}{} }()
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_, _ = udp.Close(), tcp.Close()
		<-done
		<-done
	})
	return s
}

// answers asks by UDP and opens a TCP connection, from a namespace, and checks whether
// that succeeds. It returns how long the first answer took.
func answers(t *testing.T, what, ns string, s *echo, want bool) (took time.Duration) {
	t.Helper()
	limit := 300 * time.Millisecond // in which nothing is to come
	if want {
		limit = slower(10 * time.Second)
	}
	for _, network := range []string{"udp", "tcp"} {
		err := namespaces.Do(ctx, ns, func() error {
			start := time.Now()
			d := net.Dialer{Timeout: limit}
			c, err := d.Dial(network, s.addr)
			if err != nil {
				return err
			}
			defer c.Close()
			if network == "tcp" {
				return nil
			}
			_ = c.SetDeadline(time.Now().Add(limit))
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
			_, err = c.Read(make([]byte, 64))
			took = time.Since(start)
			return err
		})
		if got := err == nil; got != want {
			t.Errorf("%s: %s at %s answers: %t, want %t (%v)", what, network, s.addr, got, want, err)
		}
	}
	return took
}
