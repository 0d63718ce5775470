package ebpf

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/qdisc"
)

func TestMark(t *testing.T) {
	v4 := make([]byte, 14+20+8)
	v4[12], v4[14], v4[14+8], v4[14+9] = 8, 0x45, 64, 17
	v6 := make([]byte, 14+40+8)
	v6[12], v6[13], v6[14], v6[14+6] = 0x86, 0xdd, 0x60, 17
	tagged := func(f []byte) []byte {
		return slices.Concat(f[:12], []byte{0x88, 0xa8, 0, 1, 0x81, 0, 0, 7}, f[12:])
	}
	for ecn := range byte(4) {
		for i, f := range [][]byte{v4, v6, tagged(v4), tagged(v6)} {
			f = slices.Clone(f)
			ip := ipHeader(f)
			shift := 4 * (i % 2) // in IPv6 the traffic class begins 4 bits later
			ip[1] |= ecn << shift
			if i%2 == 0 {
				binary.BigEndian.PutUint16(ip[10:], checksum(ip[:20]))
			}
			if got := carriesECN(f); got != (ecn != 0) {
				t.Errorf("frame %d with %d: carries ECN: %t", i, ecn, got)
			}
			before := slices.Clone(f)
			mark(f)
			if got := ip[1] >> shift & congested; got != congested {
				t.Errorf("frame %d with %d: %d after marking", i, ecn, got)
			}
			if i%2 == 0 {
				if sum := checksum(ip[:20]); sum != 0 {
					t.Errorf("frame %d with %d: the checksum is off by %#x", i, ecn, sum)
				}
				copy(ip[10:12], ipHeader(before)[10:12])
			}
			ip[1] = ipHeader(before)[1]
			if !slices.Equal(f, before) {
				t.Errorf("frame %d with %d: more was changed:\n%x\n%x", i, ecn, before, f)
			}
		}
	}
	for _, f := range [][]byte{v4, v6, tagged(v4), tagged(v6)} {
		ip := ipHeader(f)
		ip[1] = 0xff
		header := len(f) - 8 // ends here
		if !carriesECN(f[:header]) {
			t.Errorf("%x does not carry ECN", f)
		}
		for n := range header {
			if cut := slices.Clone(f[:n]); carriesECN(cut) {
				t.Errorf("%x carries ECN", cut)
			} else if mark(cut); !slices.Equal(cut, f[:n]) {
				t.Errorf("%x was changed", cut)
			}
		}
	}
}

// ecnFlow sends n datagrams with the ECN bits and returns those of what arrived. It waits
// for as many as want, and a moment for what should not come.
func (l *lab) ecnFlow(t *testing.T, client, server string, bits, n, want int) []int {
	t.Helper()
	var in, out *net.UDPConn
	l.in(t, l.server, func() (err error) {
		in, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(server), Port: port})
		return err
	})
	defer in.Close()
	l.in(t, l.client, func() (err error) {
		out, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(client)}, &net.UDPAddr{IP: net.ParseIP(server), Port: port})
		return err
	})
	defer out.Close()
	option := func(c *net.UDPConn, level, name, value int) {
		t.Helper()
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if cerr := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) }); cerr != nil || err != nil {
			t.Fatal(cerr, err)
		}
	}
	if net.ParseIP(server).To4() != nil {
		option(in, unix.IPPROTO_IP, unix.IP_RECVTOS, 1)
		option(out, unix.IPPROTO_IP, unix.IP_TOS, bits)
	} else {
		option(in, unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1)
		option(out, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, bits)
	}
	for range n {
		if _, err := out.Write(make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	b, oob := make([]byte, 100), make([]byte, 100)
	for {
		patience := 20 * ms
		if len(got) < want {
			patience = 500 * ms
		}
		_ = in.SetReadDeadline(time.Now().Add(slower(patience)))
		_, k, _, _, err := in.ReadMsgUDP(b, oob)
		if err != nil {
			return got
		}
		all, err := unix.ParseSocketControlMessage(oob[:k])
		if err != nil || len(all) != 1 {
			t.Fatalf("%v: %v", all, err)
		}
		got = append(got, int(all[0].Data[0]))
	}
}

// Packets that carry ECN are marked instead of lost, in both modes, the others are lost.
func TestECN(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for name, n := range map[string]qdisc.Netem{"drop": {Loss: 100, ECN: true}, "queue": {Loss: 100, ECN: true, Delay: 10 * ms}} {
			t.Run(string(hook)+"/"+name, func(t *testing.T) {
				l, e := newLab(t), newEngine(t, Config{})
				p := onPort(l.place)
				if hook == target.Ingress {
					p = onPort(l.at(t, l.server, target.Ingress))
					l.sniff(t, l.server) // so that packets are clones
				}
				set(t, e, p, n)
				for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
					for bits := range 4 {
						l.checkECN(t, e, p, way.client, way.server, bits)
					}
				}
				if st, err := e.Read(ctx, p); err != nil || !st.Netem.ECN {
					t.Errorf("read: %+v, %v", st.Netem, err)
				}
			})
		}
	}
}

func (l *lab) checkECN(t *testing.T, e *Engine, p target.Place, client, server string, bits int) {
	t.Helper()
	const sent = 20
	want := sent
	if bits == 0 {
		want = 0
	}
	undisturbed(t, func() string {
		before := counters(t, e, p)
		got := l.ecnFlow(t, client, server, bits, sent, want)
		c := counters(t, e, p)
		if c.Opened != before.Opened {
			return fmt.Sprintf("packets that passed: %+v, before %+v", c, before)
		}
		if len(got) != want || c.Lost-before.Lost != uint64(sent-want) || c.Seen-before.Seen != sent {
			t.Errorf("%s, %d: %d arrived, want %d; %+v, before %+v", server, bits, len(got), want, c, before)
		}
		for _, b := range got {
			if b != congested {
				t.Errorf("%s, %d: arrived as %d", server, bits, b)
			}
		}
		return ""
	})
}

// sniff opens a packet socket that gets everything in a namespace.
func (l *lab) sniff(t *testing.T, ns string) {
	t.Helper()
	l.in(t, ns, func() error {
		all := unix.ETH_P_ALL
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all>>8|all&0xff<<8)
		if err == nil {
			t.Cleanup(func() { _ = unix.Close(fd) })
		}
		return err
	})
}
