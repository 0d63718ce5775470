package netem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// stream is numbered packets of one flow between near and far. They are sent through
// raw sockets: TCP's own would send some again.
type stream struct {
	name     string
	v6, back bool // back goes from far to near
	protocol uint8
	// other is the second address of far.
	other bool
	port  uint16 // far's

	id   uint32
	from net.PacketConn
	to   net.Addr
	sent uint32
}

var addresses = map[bool][3]string{false: {"10.99.0.1", "10.99.0.2", "10.99.0.66"}, true: {"fd99::1", "fd99::2", "fd99::1:2"}}

// traffic is many streams and what came of them.
type traffic struct {
	streams []*stream
	mu      sync.Mutex
	came    map[uint32]map[uint32]time.Duration // stream, number: how long it took
	copies  map[uint32]int                      // of each stream, what came once more
	start   time.Time
	conns   []net.PacketConn
	readers sync.WaitGroup
}

// flows opens sockets for the streams. b gets its second addresses, of both families.
func (b *bench) flows(t testing.TB, streams ...*stream) *traffic {
	t.Helper()
	tr := &traffic{streams: streams, came: map[uint32]map[uint32]time.Duration{}, copies: map[uint32]int{}, start: time.Now()}
	b.addresses(t)
	open := map[string]net.PacketConn{}
	socket := func(s *stream, ns, address string) net.PacketConn {
		network := fmt.Sprintf("ip4:%d", s.protocol)
		if s.v6 {
			network = fmt.Sprintf("ip6:%d", s.protocol)
		}
		key := ns + network + address
		if open[key] == nil {
			err := namespaces.Do(t.Context(), ns, func() error {
				conn, err := net.ListenPacket(network, address)
				if err != nil {
					return err
				}
				open[key] = conn
				raw, err := conn.(*net.IPConn).SyscallConn()
				if err != nil {
					return err
				}
				var refused error
				err = raw.Control(func(fd uintptr) {
					refused = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
				})
				return errors.Join(err, refused)
			})
			if err != nil {
				t.Fatal(err)
			}
			tr.conns = append(tr.conns, open[key])
			conn := open[key]
			tr.readers.Go(func() { tr.read(conn) })
		}
		return open[key]
	}
	t.Cleanup(func() {
		for _, c := range tr.conns {
			_ = c.Close()
		}
		tr.readers.Wait()
	})
	for i, s := range streams {
		s.id = uint32(i + 1)
		tr.came[s.id] = map[uint32]time.Duration{}
		all := addresses[s.v6]
		near, far := all[0], all[1]
		if s.other {
			far = all[2]
		}
		nearSocket, farSocket := socket(s, b.near, near), socket(s, b.far, far)
		s.from, s.to = nearSocket, &net.IPAddr{IP: net.ParseIP(far)}
		if s.back {
			s.from, s.to = farSocket, &net.IPAddr{IP: net.ParseIP(near)}
		}
	}
	return tr
}

// addresses gives both ends their addresses of both families.
func (b *bench) addresses(t testing.TB) {
	t.Helper()
	for ns, list := range map[string][]string{b.near: {"fd99::1/64"}, b.far: {"10.99.0.66/24", "fd99::2/64", "fd99::1:2/64"}} {
		err := namespaces.Do(t.Context(), ns, func() error {
			for _, a := range list {
				if err := addAddress("v0", netip.MustParsePrefix(a)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

const headerSize = 20 // TCP's; for UDP what is behind its 8 bytes is data

// send sends one packet of s.
func (tr *traffic) send(t testing.TB, s *stream) {
	b := make([]byte, headerSize+16)
	ports := [2]uint16{40000, s.port}
	if s.back {
		ports = [2]uint16{s.port, 40000}
	}
	binary.BigEndian.PutUint16(b, ports[0])
	binary.BigEndian.PutUint16(b[2:], ports[1])
	if s.protocol == unix.IPPROTO_UDP {
		binary.BigEndian.PutUint16(b[4:], uint16(len(b)))
	} else {
		b[12], b[13] = headerSize/4<<4, 4 // a reset: nothing answers that
	}
	binary.BigEndian.PutUint32(b[headerSize:], s.id)
	binary.BigEndian.PutUint32(b[headerSize+4:], s.sent)
	binary.BigEndian.PutUint64(b[headerSize+8:], uint64(time.Since(tr.start)))
	s.sent++
	if _, err := s.from.WriteTo(b, s.to); err != nil {
		t.Errorf("%s: %v", s.name, err)
	}
}

func (tr *traffic) read(c net.PacketConn) {
	b := make([]byte, 2000)
	for {
		n, _, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		if n != headerSize+16 {
			continue
		}
		id, number := binary.BigEndian.Uint32(b[headerSize:]), binary.BigEndian.Uint32(b[headerSize+4:])
		took := time.Since(tr.start) - time.Duration(binary.BigEndian.Uint64(b[headerSize+8:]))
		tr.mu.Lock()
		if m := tr.came[id]; m != nil {
			if _, again := m[number]; again {
				tr.copies[id]++
			}
			m[number] = took
		}
		tr.mu.Unlock()
	}
}

// known waits until both ends know their neighbours.
func (tr *traffic) known(t testing.TB) {
	t.Helper()
	for _, s := range tr.streams {
		for try := 0; tr.count(s, span{0, s.sent}) == 0; try++ {
			if try == 20 {
				t.Fatalf("%s: nothing comes through", s.name)
			}
			tr.send(t, s)
			tr.await(s, span{s.sent - 1, s.sent})
		}
	}
}

// count is how many in a range of s have come.
func (tr *traffic) count(s *stream, r span) int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	n := 0
	for number := range tr.came[s.id] {
		if number >= r.from && number < r.to {
			n++
		}
	}
	return n
}

// took is how long a packet of s took; 0 for one that has not come.
func (tr *traffic) took(s *stream, number uint32) time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.came[s.id][number]
}

// await waits until all in a range of s have come, or no more come, and returns how
// many did.
func (tr *traffic) await(s *stream, r span) int {
	now := tr.count(s, r)
	for last, still := -1, 0; now < int(r.to-r.from) && still < 40; now = tr.count(s, r) {
		still++
		if now != last {
			last, still = now, 0
		}
		time.Sleep(5 * ms)
	}
	return now
}

// amount is how many packets the others send through a fault's life.
func amount() int {
	if os.Getenv("NETEMD_TEST_LONG") == "" || testing.Short() {
		return 1000
	}
	return 10_000
}

func number(v6 bool) string {
	if v6 {
		return "v6"
	}
	return "v4"
}

// Of all flows, families, protocols and directions, only the selected packets are
// hurt; the others lose none while a fault is applied, changed and cleared, nor do the
// selected ones through being placed, changed and cleared.
func TestFlowMatrix(t *testing.T) { bothWays(t, testFlowMatrix) }

func testFlowMatrix(t *testing.T) {
	impairs := os.Getenv("NETEMD_TEST_NETEM") != ""
	b := newBench(t)
	e := detourEngine(t, b.near)
	if clsactOnly {
		b.tc(t, "qdisc add dev v0 clsact")
	} // to make one drops packets: see TestMakingClsact
	var streams []*stream
	for _, v6 := range []bool{false, true} {
		for _, back := range []bool{false, true} {
			for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
				for _, other := range []bool{false, true} {
					for _, port := range []uint16{80, 8080} {
						streams = append(streams, &stream{
							name: fmt.Sprintf("%s %s back %t other %t port %d", number(v6), target.ProtocolName(protocol), back, other, port),
							v6:   v6, back: back, protocol: protocol, other: other, port: port,
						})
					}
				}
			}
		}
	}
	tr := b.flows(t, streams...)
	tr.known(t)
	for _, v6 := range []bool{false, true} {
		for _, protocol := range []uint8{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
			for _, hook := range []target.Hook{target.Egress, target.Ingress} {
				for _, by := range []string{"port", "cidr", "exclude"} {
					name := fmt.Sprintf("%s %s %s by %s", number(v6), target.ProtocolName(protocol), hook, by)
					p := b.foreign(hook)
					p.Match = matchBy(by, v6, protocol, hook)
					chosen := func(s *stream) bool {
						return s.v6 == v6 && s.protocol == protocol && s.back == (hook == target.Ingress) &&
							(by == "port" && s.port == 80 || by == "cidr" && s.other || by == "exclude" && s.port != 80 && !s.other)
					}
					t.Run(name, func(t *testing.T) { tr.through(t, e, p, chosen, impairs) })
				}
			}
		}
	}
}

// matchBy selects by one of the ways.
func matchBy(by string, v6 bool, protocol uint8, hook target.Hook) target.Match {
	prefix := netip.MustParsePrefix("10.99.0.64/26")
	all := netip.MustParsePrefix("10.0.0.0/8")
	if v6 {
		prefix, all = netip.MustParsePrefix("fd99::1:0/112"), netip.MustParsePrefix("fd99::/64")
	}
	family := target.Flow{Protocol: protocol, Destination: all}
	port, net := family, family
	port.DestinationPorts = target.Port(80)
	net.Destination = prefix
	m := map[string]target.Match{
		"port": {Include: []target.Flow{port}}, "cidr": {Include: []target.Flow{net}},
		"exclude": {Include: []target.Flow{family}, Exclude: []target.Flow{port, net}},
	}[by]
	if hook == target.Ingress {
		m = m.Reverse()
	}
	return m
}

// span is a range of a stream's numbers.
type span struct{ from, to uint32 }

// rounds sends n packets of each stream, 1 ms apart, and returns which.
func (tr *traffic) rounds(t testing.TB, n int) map[*stream]span {
	spans := map[*stream]span{}
	for _, s := range tr.streams {
		spans[s] = span{s.sent, s.sent + uint32(n)}
	}
	for range n {
		for _, s := range tr.streams {
			tr.send(t, s)
		}
		time.Sleep(ms)
	}
	return spans
}

// beside calls f while packets pass, and returns which.
func (tr *traffic) beside(t testing.TB, n int, f func() error) map[*stream]span {
	var busy sync.WaitGroup
	busy.Go(func() {
		if err := f(); err != nil {
			t.Error(err)
		}
	})
	spans := tr.rounds(t, n)
	busy.Wait()
	return spans
}

// through takes a fault at p through its life under all streams.
func (tr *traffic) through(t *testing.T, e *Engine, p target.Place, chosen func(*stream) bool, impairs bool) {
	n := amount()/len(tr.streams)/6 + 1
	set := func(n qdisc.Netem) func() error {
		return func() error { return e.Set(t.Context(), p, n, time.Time{}) }
	}
	whole := []map[*stream]span{tr.beside(t, n, set(qdisc.Netem{})), tr.beside(t, n, set(qdisc.Netem{Delay: 20 * ms}))}
	delayed := tr.rounds(t, 2)
	tr.beside(t, n, set(qdisc.Netem{Loss: 100}))
	lost := tr.rounds(t, n)
	tr.beside(t, n, set(qdisc.Netem{}))
	whole = append(whole, delayed, tr.beside(t, n, func() error { return e.Clear(t.Context(), p) }), tr.rounds(t, 1))
	e.drains.Wait()
	for _, s := range tr.streams {
		if !chosen(s) || !impairs {
			all := span{whole[0][s].from, s.sent}
			if got := tr.await(s, all); got != int(all.to-all.from) {
				t.Errorf("%s: %d of %d came", s.name, got, all.to-all.from)
			}
			continue
		}
		for i, r := range whole {
			if got := tr.await(s, r[s]); got != int(r[s].to-r[s].from) {
				t.Errorf("%s: the fault's act %d lost some: %d of %d came", s.name, i, got, r[s].to-r[s].from)
			}
		}
		if got := tr.count(s, lost[s]); got != 0 {
			t.Errorf("%s: %d of %d came in spite of the loss", s.name, got, n)
		}
		for i := delayed[s].from; i < delayed[s].to; i++ {
			if took := tr.took(s, i); took < 20*ms {
				t.Errorf("%s: took %v in spite of the delay", s.name, took)
			}
		}
	}
}

// loopback returns a function that asks an echo at port 80 of b.near's loopback so
// often, and says how many answers came.
func (b *bench) loopback(t *testing.T) func(int) int {
	t.Helper()
	var server, client net.PacketConn
	err := namespaces.Do(t.Context(), b.near, func() (err error) {
		if server, err = net.ListenPacket("udp4", "127.0.0.1:80"); err != nil {
			return err
		}
		client, err = net.ListenPacket("udp4", "127.0.0.1:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var echo sync.WaitGroup
	echo.Go(func() {
		buf := make([]byte, 64)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			if _, err := server.WriteTo(buf[:n], from); err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_, _ = client.Close(), server.Close()
		echo.Wait()
	})
	return func(n int) (came int) {
		buf := make([]byte, 64)
		for range n {
			if _, err := client.WriteTo([]byte("hello"), server.LocalAddr()); err != nil {
				t.Fatal(err)
			}
		}
		for range n {
			if err := client.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := client.ReadFrom(buf); err == nil {
				came++
			}
		}
		return came
	}
}
