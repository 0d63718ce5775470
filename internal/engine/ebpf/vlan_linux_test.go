package ebpf

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

const clientVLAN, serverVLAN = "10.98.0.1", "10.98.0.2"

// addVLAN puts VLAN 7 on both ends of the lab.
func (l *lab) addVLAN(t *testing.T) {
	t.Helper()
	for ns, address := range map[string]string{l.client: clientVLAN, l.server: serverVLAN} {
		err := namespaces.Do(ctx, ns, func() error {
			parent, err := netlink.LinkByName("veth0")
			if err != nil {
				return err
			}
			vlan := &netlink.Vlan{LinkAttrs: netlink.NewLinkAttrs(), VlanId: 7}
			vlan.Name, vlan.ParentIndex = "vlan7", parent.Attrs().Index
			if err := netlink.LinkAdd(vlan); err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(address + "/24")
			if err != nil {
				return err
			}
			if err := netlink.AddrAdd(vlan, addr); err != nil {
				return err
			}
			return netlink.LinkSetUp(vlan)
		})
		if errors.Is(err, unix.EOPNOTSUPP) && !inVM {
			t.Skip("needs VLAN devices (module 8021q)")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Packets in a VLAN are selected on the device below by what they carry, since their
// tag is not in the data at the hooks.
func TestVLAN(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			l.addVLAN(t)
			p := l.place
			if hook == target.Ingress {
				p = l.at(t, l.server, target.Ingress)
			}
			p.Match.Include = []target.Flow{{
				Protocol: 17, DestinationPorts: target.Port(port), Source: netip.MustParsePrefix(clientVLAN + "/32"),
			}}
			inside := l.newFlow(t, clientVLAN, serverVLAN, 0, port)
			other := l.newFlow(t, clientVLAN, serverVLAN, 0, port+1)
			plain := l.newFlow(t, client4, server4, 0, port)
			inside.send(1, 64, 0) // finds the neighbour
			inside.collect(1)
			got, c := steady(t, e, p, qdisc.Netem{Loss: 100}, func() []arrival {
				for _, f := range []*stream{inside, other, plain} {
					f.send(20, 64, 0)
				}
				for _, f := range []*stream{other, plain} {
					if got := len(f.collect(20)); got != 20 {
						t.Errorf("to %s: %d of 20 arrived", f.out.RemoteAddr(), got)
					}
				}
				return inside.drain(20 * ms)
			})
			if len(got) != 0 || c.Seen != 20 || c.Lost != 20 {
				t.Errorf("%d of 20 arrived; %+v", len(got), c)
			}
			got, c = steady(t, e, p, qdisc.Netem{Delay: 30 * ms, Duplicate: 100}, func() []arrival {
				inside.send(20, 64, ms)
				return inside.collect(40)
			})
			if len(got) != 40 || least(got) < 30*ms || c.Duplicated != 20 {
				t.Errorf("%d of 40 arrived, from %s: %+v", len(got), least(got), c)
			}
		})
	}
}

// Tags in the data, as a packet socket sends them, are walked over, two at most. On the
// way in the kernel takes the outer one off before.
func TestVLANTagsInTheData(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	flow := target.Flow{DestinationPorts: target.Port(port), Destination: netip.MustParsePrefix(server4 + "/32")}
	out, in := l.place, l.at(t, l.server, target.Ingress)
	for _, p := range []*target.Place{&out, &in} {
		p.Match.Include = []target.Flow{flow}
		set(t, e, *p, qdisc.Netem{})
	}
	var s *socket
	l.in(t, l.client, func() (err error) {
		s, err = newSocket(l.place.Index, 0)
		return err
	})
	defer func() { _ = s.close() }()
	ip := append([]byte{8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0},
		append(netip.MustParseAddr(client4).AsSlice(), netip.MustParseAddr(server4).AsSlice()...)...)
	ip = append(ip, 1, 2, port>>8, port&0xff, 0, 8, 0, 0)
	for tags, want := range []struct{ out, in uint64 }{{1, 1}, {1, 1}, {1, 1}, {0, 1}, {0, 0}} {
		frame := make([]byte, vnetHeader)
		frame = append(frame, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1) // to all
		for range tags {
			frame = append(frame, 0x81, 0, 0, 7)
		}
		seen := func() [2]uint64 {
			return [2]uint64{counters(t, e, out).Seen, counters(t, e, in).Seen}
		}
		before := seen()
		if _, err := s.send([]packet{{frame: append(frame, ip...)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(slower(20 * ms))
		if now := seen(); now[0]-before[0] != want.out || now[1]-before[1] != want.in {
			t.Errorf("%d tags: seen %d times on the way out, %d on the way in, want %+v", tags, now[0]-before[0], now[1]-before[1], want)
		}
	}
}
