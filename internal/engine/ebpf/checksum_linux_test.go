package ebpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// seen is a packet as a sniffer on a device gets it.
type seen struct {
	// outgoing says that the device sent it.
	outgoing bool
	// header is its virtio_net_hdr, which says what of the checksum is still open.
	header, frame []byte
}

// sniffer is a packet socket on one device that keeps what it sees.
type sniffer struct {
	num  int
	done chan struct{}
	mu   sync.Mutex
	all  []seen
}

func (l *lab) newSniffer(t testing.TB, ns, device string) *sniffer {
	t.Helper()
	s := &sniffer{num: -1, done: make(chan struct{})}
	l.in(t, ns, func() error {
		link, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		// Bound before it listens, or it would see other devices' packets at first.
		if s.num, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		wait := unix.NsecToTimeval(int64(50 * ms))
		return errors.Join(
			unix.SetsockoptInt(s.num, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(s.num, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20),
			unix.SetsockoptTimeval(s.num, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
			unix.Bind(s.num, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index, Protocol: bigEndian(unix.ETH_P_ALL)}),
		)
	})
	stop := make(chan struct{})
	go s.run(stop)
	t.Cleanup(func() {
		close(stop)
		<-s.done
		_ = unix.Close(s.num)
	})
	return s
}

func bigEndian(n uint16) uint16 { return n<<8 | n>>8 }

func (s *sniffer) run(stop chan struct{}) {
	defer close(s.done)
	b := make([]byte, 1<<17)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, from, err := unix.Recvfrom(s.num, b, 0)
		if err != nil || n < vnetHeader {
			continue
		}
		ll, _ := from.(*unix.SockaddrLinklayer)
		p := bytes.Clone(b[:n])
		s.mu.Lock()
		s.all = append(s.all, seen{ll != nil && ll.Pkttype == unix.PACKET_OUTGOING, p[:vnetHeader], p[vnetHeader:]})
		s.mu.Unlock()
	}
}

func (s *sniffer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// take waits until nothing comes for a moment, and returns what was seen since the
// last call.
func (s *sniffer) take() []seen {
	for n := -1; n != s.count(); time.Sleep(slower(20 * ms)) {
		n = s.count()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// auditor checks the checksums of captured packets by itself, beyond what the
// receiving stack looks at, and puts fragments together for it.
type auditor struct {
	checked map[uint8]int // by protocol
	whole   int           // super-packets
	pieces  map[string]*pieces
	// at is who sees the packets: two who see the same one have its pieces at different times.
	at string
}

// pieces are the fragments of one packet.
type pieces struct {
	pseudo []byte
	proto  uint8
	data   []byte
	got    map[int]int
	size   int
}

func newAuditor() *auditor { return &auditor{checked: map[uint8]int{}, pieces: map[string]*pieces{}} }

// check says what is wrong with a packet's checksums.
func (a *auditor) check(p seen) error {
	frame := bytes.Clone(p.frame)
	if p.header[vnetFlags]&vnetNeedsCsum != 0 {
		// Do what the hardware would.
		start := int(binary.NativeEndian.Uint16(p.header[vnetCsumStart:]))
		at := start + int(binary.NativeEndian.Uint16(p.header[vnetCsumOffset:]))
		if at+2 > len(frame) {
			return fmt.Errorf("an open checksum at %d of %d bytes", at, len(frame))
		}
		sum := checksum(frame[start:])
		if sum == 0 {
			sum = 0xffff
		}
		binary.BigEndian.PutUint16(frame[at:], sum)
	} else if p.header[vnetGSOType] != 0 {
		return errors.New("a super-packet whose checksum is not open")
	}
	if p.header[vnetGSOType] != 0 {
		a.whole++
	}
	at := 12
	for binary.BigEndian.Uint16(frame[at:]) == unix.ETH_P_8021Q {
		at += 4
	}
	ip := frame[at+2:]
	switch binary.BigEndian.Uint16(frame[at:]) {
	case unix.ETH_P_IP:
		return a.check4(ip)
	case unix.ETH_P_IPV6:
		return a.check6(ip)
	}
	return nil
}

func (a *auditor) check4(ip []byte) error {
	header, size := int(ip[0]&0xf)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if checksum(ip[:header]) != 0 {
		return errors.New("the IPv4 header's checksum is wrong")
	}
	if size > len(ip) {
		return fmt.Errorf("%d bytes of an IPv4 packet of %d", len(ip), size)
	}
	pseudo := ip[12:20]
	part := binary.BigEndian.Uint16(ip[6:])
	offset, more := int(part&0x1fff)*8, part&0x2000 != 0
	return a.transport(fmt.Sprintf("%x %x", ip[4:6], pseudo), pseudo, ip[9], ip[header:size], offset, more)
}

func (a *auditor) check6(ip []byte) error {
	size := 40 + int(binary.BigEndian.Uint16(ip[4:]))
	if size > len(ip) {
		return fmt.Errorf("%d bytes of an IPv6 packet of %d", len(ip), size)
	}
	proto, rest, pseudo := ip[6], ip[40:size], ip[8:40]
	for proto == unix.IPPROTO_HOPOPTS {
		proto, rest = rest[0], rest[8*(int(rest[1])+1):]
	}
	if proto != unix.IPPROTO_FRAGMENT {
		return a.transport("", pseudo, proto, rest, 0, false)
	}
	part := binary.BigEndian.Uint16(rest[2:])
	return a.transport(fmt.Sprintf("%x %x", rest[4:8], pseudo), pseudo, rest[0], rest[8:], int(part&^7), part&1 != 0)
}

func (a *auditor) transport(key string, pseudo []byte, proto uint8, data []byte, offset int, more bool) error {
	if offset == 0 && !more {
		return a.sum(pseudo, proto, data)
	}
	key += a.at
	f := a.pieces[key]
	if f == nil {
		f = &pieces{pseudo: pseudo, proto: proto, data: make([]byte, 1<<16), got: map[int]int{}, size: -1}
		a.pieces[key] = f
	}
	copy(f.data[offset:], data)
	f.got[offset] = len(data)
	if !more {
		f.size = offset + len(data)
	}
	have := 0
	for _, n := range f.got {
		have += n
	}
	if have != f.size {
		return nil
	}
	delete(a.pieces, key)
	return a.sum(f.pseudo, f.proto, f.data[:f.size])
}

// sum checks a transport checksum (RFC 768, 793, 792, 4443).
func (a *auditor) sum(pseudo []byte, proto uint8, data []byte) error {
	switch proto {
	case unix.IPPROTO_ICMP:
		pseudo = nil
	case unix.IPPROTO_UDP:
		if binary.BigEndian.Uint16(data[6:]) == 0 {
			return errors.New("a UDP packet without a checksum")
		}
	case unix.IPPROTO_TCP, unix.IPPROTO_ICMPV6:
	default:
		return nil
	}
	a.checked[proto]++
	all := bytes.Clone(pseudo)
	if pseudo != nil {
		all = binary.BigEndian.AppendUint32(all, uint32(len(data)))
		all = append(all, 0, 0, 0, proto)
	}
	if checksum(append(all, data...)) != 0 {
		return fmt.Errorf("the checksum of protocol %d over %d bytes is wrong", proto, len(data))
	}
	return nil
}

// Legacy commands of SIOCETHTOOL (linux/ethtool.h).
var offloads = []uint32{0x15, 0x17, 0x1f, 0x24, 0x2c} // SRXCSUM, STXCSUM, STSO, SGSO, SGRO

// setOffloads switches checksum and segmentation offload of a device.
func (l *lab) setOffloads(t testing.TB, ns, device string, on bool) {
	t.Helper()
	l.in(t, ns, func() error {
		num, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer func() { _ = unix.Close(num) }()
		for _, cmd := range offloads {
			value := struct{ cmd, data uint32 }{cmd: cmd}
			if on {
				value.data = 1
			}
			var ifr struct {
				name [unix.IFNAMSIZ]byte
				data unsafe.Pointer
				_    [16]byte
			}
			copy(ifr.name[:], device)
			ifr.data = unsafe.Pointer(&value)
			if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(num), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); errno != 0 && on {
				return fmt.Errorf("ethtool command %#x: %w", cmd, errno)
			}
		}
		return nil
	})
}

// path is a pair of addresses that reach each other.
type path struct{ client, server string }

// mix sends some of everything over a path, both ways, and checks what the
// applications get.
func (l *lab) mix(t *testing.T, way path, offloaded bool) {
	t.Helper()
	l.exchangeTCP(t, way, 200<<10)
	var echo *net.UDPConn
	l.in(t, l.server, func() (err error) {
		echo, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(way.server)})
		return err
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b := make([]byte, 70000)
		for {
			n, from, err := echo.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = echo.WriteToUDPAddrPort(b[:n], from)
		}
	}()
	defer func() {
		echo.Close()
		<-ended
	}()
	var out *net.UDPConn
	l.in(t, l.client, func() (err error) {
		out, err = net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(way.client)}, echo.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer out.Close()
	answer := make([]byte, 70000)
	for _, size := range []int{1, 2, 33, 700, 1399, 4001, 30000} { // the last two in fragments
		b := bytes.Repeat([]byte{byte(size)}, size)
		if _, err := out.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = out.SetReadDeadline(time.Now().Add(slower(2 * time.Second)))
		if n, err := out.Read(answer); err != nil || !bytes.Equal(answer[:n], b) {
			t.Fatalf("UDP of %d bytes: %d came back, %v", size, n, err)
		}
	}
	// One call, nine packets: they are cut as late as can be.
	raw, err := out.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_UDP, unix.UDP_SEGMENT, 1000) })
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 500}
	switch _, err := out.Write(bytes.Repeat([]byte{7}, 8500)); {
	case errors.Is(err, unix.EIO) && !offloaded:
		sizes = nil // older kernels (seen on 6.1) refuse it without checksum offload
	case err != nil:
		t.Fatal(err)
	}
	for i, want := range sizes {
		_ = out.SetReadDeadline(time.Now().Add(slower(2 * time.Second)))
		if n, err := out.Read(answer); err != nil || n != want {
			t.Fatalf("segment %d: %d bytes, %v", i, n, err)
		}
	}
	l.refused(t, way)
}

// exchangeTCP sends size bytes there and back.
func (l *lab) exchangeTCP(t testing.TB, way path, size int) {
	t.Helper()
	client, peer := l.connect(t, way.server)
	defer client.Close()
	defer peer.Close()
	limit := time.Now().Add(slower(10 * time.Second))
	_, _ = client.SetDeadline(limit), peer.SetDeadline(limit)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(peer, peer)
		_ = peer.CloseWrite()
	}()
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 2654435761 >> 13)
	}
	go func() {
		_, _ = client.Write(data)
		_ = client.CloseWrite()
	}()
	back, err := io.ReadAll(client)
	if err != nil || !bytes.Equal(back, data) {
		t.Fatalf("TCP to %s: %d of %d bytes came back, %v", way.server, len(back), len(data), err)
	}
	<-ended
}

// refused has the server answer with an ICMP error, which reaches the socket.
func (l *lab) refused(t testing.TB, way path) {
	t.Helper()
	var c *net.UDPConn
	l.in(t, l.client, func() (err error) {
		c, err = net.DialUDP("udp", nil, &net.UDPAddr{IP: net.ParseIP(way.server), Port: 9})
		return err
	})
	defer c.Close()
	for range 50 { // the kernel sends few of them
		_, _ = c.Write([]byte("x"))
		_ = c.SetReadDeadline(time.Now().Add(slower(100 * ms)))
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, unix.ECONNREFUSED) {
			return
		}
	}
	t.Errorf("%s: no ICMP error came", way.server)
}

// No packet leaves with a wrong checksum, whatever the fault's mode, the hook, the
// devices' offloads, or the tag. The receiver's end checks all that passes it.
func TestChecksums(t *testing.T) {
	modes := []struct {
		name string
		n    qdisc.Netem
	}{
		{"drop", qdisc.Netem{Loss: 1e-6}},
		{"whole", qdisc.Netem{Delay: ms}},
		{"frames", qdisc.Netem{Delay: ms, Loss: 1e-6}},
	}
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for _, tagged := range []bool{false, true} {
			if brief() && tagged != (hook == target.Ingress) {
				continue
			}
			t.Run(fmt.Sprintf("%s tagged %t", hook, tagged), func(t *testing.T) {
				l, e := newLab(t), newEngine(t, Config{})
				ways := []path{{client4, server4}, {client6, server6}}
				if tagged {
					l.addVLAN(t)
					ways = []path{{clientVLAN, serverVLAN}}
				}
				p := l.place
				if hook == target.Ingress {
					p = l.at(t, l.server, target.Ingress)
				}
				atServer, atClient := l.newSniffer(t, l.server, "veth0"), l.newSniffer(t, l.client, "veth0")
				for _, on := range []bool{true, false} {
					for _, ns := range []string{l.client, l.server} {
						l.setOffloads(t, ns, "veth0", on)
					}
					for _, m := range modes {
						set(t, e, p, m.n)
						a := newAuditor()
						for _, way := range ways {
							l.mix(t, way, on)
						}
						c := counters(t, e, p)
						wrong := 0
						// A part of the last packet may still be on its way to the sniffer.
						for end := time.Now().Add(slower(time.Second)); ; time.Sleep(10 * ms) {
							for at, from := range map[string]*sniffer{l.server: atServer, l.client: atClient} {
								a.at = at
								for i, s := range from.take() {
									if err := a.check(s); err != nil {
										if wrong++; wrong < 4 {
											t.Errorf("offloads %t, %s: packet %d at %s, %d bytes: %v", on, m.name, i, at, len(s.frame), err)
										}
									}
								}
							}
							if len(a.pieces) == 0 || time.Now().After(end) {
								break
							}
						}
						t.Logf("offloads %t, %s: checked %v by protocol, %d super-packets; %+v", on, m.name, a.checked, a.whole, c)
						if n := l.checksumErrors(t, l.server) + l.checksumErrors(t, l.client); n > 0 || wrong > 0 {
							t.Errorf("offloads %t, %s: the stacks found %d wrong checksums, the sniffers %d", on, m.name, n, wrong)
						}
						if a.checked[unix.IPPROTO_TCP] == 0 || a.checked[unix.IPPROTO_UDP] < 20 || a.checked[unix.IPPROTO_ICMP] == 0 || len(a.pieces) > 0 {
							t.Errorf("offloads %t, %s: checked %v, %d packets in pieces", on, m.name, a.checked, len(a.pieces))
						}
						if c.Seen == 0 || c.Overflow > 0 || !on && a.whole > 0 {
							t.Errorf("offloads %t, %s: %d super-packets, %+v", on, m.name, a.whole, c)
						}
					}
				}
			})
		}
	}
}

// What corrupt asked for is found by the auditor: it can tell.
func TestAuditorFindsFlippedBits(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	s := l.newSniffer(t, l.server, "veth0")
	f := l.newFlow(t, client4, server4, 0, port)
	_, c := steady(t, e, p, qdisc.Netem{Corrupt: 100, Seed: 5}, func() []arrival {
		s.take()
		f.send(100, 500, ms)
		until(t, "100 packets", slower(3*time.Second), func() bool { return s.count() >= 100 })
		return nil
	})
	a, wrong, all := newAuditor(), 0, s.take()
	for _, got := range all {
		if a.check(got) != nil {
			wrong++
		}
	}
	// Behind the 14 bytes of the link's header every bit is under a checksum.
	if c.Corrupted != 100 || wrong < 85 {
		t.Errorf("found %d of 100 flipped bits in %d packets: %+v", wrong, len(all), c)
	}
}

// beyond adds a third node behind the server, on a link with this MTU, and returns how
// the client reaches it.
func (l *lab) beyond(t testing.TB, mtu int) (far string, ways []path) {
	t.Helper()
	far = l.server + "f"
	if err := namespaces.Create(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(far); err != nil {
			t.Error(err)
		}
	})
	for _, ns := range []string{l.server, far} { // addresses work at once
		l.in(t, ns, func() error { return sysctl("ipv6/conf/default/accept_dad", "0") })
	}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: l.server, Name: "veth1", Addresses: []netip.Prefix{
			netip.MustParsePrefix("10.97.0.1/24"), netip.MustParsePrefix("fd00:97::1/64"),
		}},
		namespaces.VethEnd{Namespace: far, Name: "veth1", Addresses: []netip.Prefix{
			netip.MustParsePrefix("10.97.0.2/24"), netip.MustParsePrefix("fd00:97::2/64"),
		}},
	)
	if err != nil {
		t.Fatal(err)
	}
	// The far end offers segments that do not fit the link, as behind a tunnel.
	route := func(to, via string) error {
		_, dst, err := net.ParseCIDR(to)
		if err != nil {
			return err
		}
		return netlink.RouteAdd(&netlink.Route{Dst: dst, Gw: net.ParseIP(via), AdvMSS: 1440})
	}
	narrow := func() error {
		link, err := netlink.LinkByName("veth1")
		if err != nil {
			return err
		}
		return netlink.LinkSetMTU(link, mtu)
	}
	l.in(t, l.server, func() error {
		return errors.Join(sysctl("ipv4/ip_forward", "1"), sysctl("ipv6/conf/all/forwarding", "1"), narrow())
	})
	l.in(t, far, func() error {
		return errors.Join(narrow(), route("10.99.0.0/24", "10.97.0.1"), route("fd00:99::/64", "fd00:97::1"))
	})
	l.in(t, l.client, func() error { return errors.Join(route("10.97.0.0/24", server4), route("fd00:97::/64", server6)) })
	return far, []path{{client4, "10.97.0.2"}, {client6, "fd00:97::2"}}
}

// A narrow link on the way is found out through a device with a fault: what is too
// long is answered with an ICMP error, which passes the queue too.
func TestPathMTU(t *testing.T) {
	const mtu = 1300
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			far, ways := l.beyond(t, mtu)
			p := l.at(t, l.client, hook)
			near := l.server
			l.server = far
			defer func() { l.server = near }()
			s := l.newSniffer(t, l.client, "veth0")
			for _, way := range ways {
				until(t, "a route to "+way.server, slower(5*time.Second), func() bool { return l.reaches(way.server) })
			}
			for i, n := range []qdisc.Netem{{Loss: 1e-6}, {Delay: 2 * ms}, {Delay: 2 * ms, Loss: 1e-6}} {
				if brief() && i == 0 {
					continue
				}
				set(t, e, p, n)
				for _, way := range ways {
					l.in(t, l.client, func() error { // it shall be found out anew
						return errors.Join(sysctl("ipv4/route/flush", "1"), sysctl("ipv6/route/flush", "1"))
					})
					s.take()
					l.exchangeTCP(t, way, 100<<10)
					a, tooBig := newAuditor(), 0
					for _, got := range s.take() {
						if err := a.check(got); err != nil {
							t.Errorf("%s: %v", n, err)
						}
						if isTooBig(got.frame) {
							tooBig++
						}
					}
					if tooBig == 0 {
						t.Errorf("%s, %s: nobody said that a packet is too long", way.server, n)
					}
					if got := l.pathMTU(t, way.server); got != mtu {
						t.Errorf("%s, %s: the path's MTU is %d, want %d", way.server, n, got, mtu)
					}
				}
				if c := counters(t, e, p); c.Seen == 0 || c.Overflow > 0 {
					t.Errorf("%s: %+v", n, c)
				}
			}
		})
	}
}

// isTooBig recognises "fragmentation needed" (RFC 1191) and "packet too big" (RFC 4443).
func isTooBig(frame []byte) bool {
	ip := ipHeader(frame)
	return len(ip) > 41 &&
		(ip[0]>>4 == 4 && ip[9] == unix.IPPROTO_ICMP && ip[20] == 3 && ip[21] == 4 ||
			ip[0]>>4 == 6 && ip[6] == unix.IPPROTO_ICMPV6 && ip[40] == 2)
}

// pathMTU is what the client's kernel has found out.
func (l *lab) pathMTU(t testing.TB, to string) (mtu int) {
	t.Helper()
	l.in(t, l.client, func() error {
		routes, err := netlink.RouteGet(net.ParseIP(to))
		if err == nil && len(routes) == 1 {
			mtu = routes[0].MTU
		}
		return err
	})
	return mtu
}

func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/"+name, []byte(value), 0)
}

// reaches asks whether the far address answers: a new link takes a moment.
func (l *lab) reaches(server string) bool {
	ok := false
	_ = namespaces.Do(ctx, l.client, func() error {
		c, err := net.DialTimeout("tcp", net.JoinHostPort(server, "9"), slower(200*ms))
		ok = errors.Is(err, unix.ECONNREFUSED)
		if err == nil {
			c.Close()
		}
		return nil
	})
	return ok
}

// The device's MTU changes while a fault is in force: down, up, and beyond what the
// TAP has, with packets of every size on the way.
func TestMTUChange(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for i, n := range []qdisc.Netem{{Delay: 5 * ms}, {Delay: 5 * ms, Loss: 1e-6}} {
			if brief() && i == 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s %s", hook, n.String()), func(t *testing.T) {
				l, e := newLab(t), newEngine(t, Config{})
				p := l.place
				if hook == target.Ingress {
					p = l.at(t, l.server, target.Ingress)
				}
				set(t, e, p, n)
				s := l.newSniffer(t, l.server, "veth0")
				resize := func(mtu int) {
					for _, ns := range []string{l.client, l.server} {
						l.in(t, ns, func() error {
							link, err := netlink.LinkByName("veth0")
							if err != nil {
								return err
							}
							return netlink.LinkSetMTU(link, mtu)
						})
					}
				}
				client, peer := l.connect(t, server4)
				limit := time.Now().Add(slower(10 * time.Second))
				_, _ = client.SetDeadline(limit), peer.SetDeadline(limit)
				data := bytes.Repeat([]byte("0123456789abcdef"), 8<<10) // 128 KB
				for _, mtu := range []int{1500, 1300, 9000, 1400, 1500} {
					resize(mtu)
					go func() { _, _ = client.Write(data) }()
					got := make([]byte, len(data))
					if n, err := io.ReadFull(peer, got); err != nil || !bytes.Equal(got, data) {
						t.Fatalf("MTU %d: %d of %d bytes, %v", mtu, n, len(data), err)
					}
				}
				a := newAuditor()
				for _, got := range s.take() {
					if err := a.check(got); err != nil {
						t.Error(err)
					}
				}
				if a.checked[unix.IPPROTO_TCP] == 0 {
					t.Error("nothing was checked")
				}
				// One packet of 9000 bytes passes uncut.
				resize(9000)
				f := l.newFlow(t, client4, server4, 0, port)
				f.send(10, 9000-28, ms)
				if got := f.collect(10); len(got) != 10 {
					t.Errorf("%d of 10 long packets arrived; %+v", len(got), counters(t, e, p))
				}
				long := 0
				for _, got := range s.take() {
					if len(got.frame) == 9000+14 {
						long++
					}
				}
				if want := map[target.Hook]int{target.Egress: 10, target.Ingress: 20}[hook]; long != want {
					t.Errorf("%d whole long packets, want %d", long, want)
				}
			})
		}
	}
}
