package ebpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/qdisc"
)

func BenchmarkSet(b *testing.B) {
	for name, n := range map[string]qdisc.Netem{"drop": {Loss: 20}, "queue": {Loss: 20, Delay: ms}} {
		b.Run(name, func(b *testing.B) {
			l, e := newLab(b), newEngine(b, Config{})
			set(b, e, l.place, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				n.Seed = uint64(i + 1)
				if err := e.Set(ctx, l.place, n, in(time.Minute)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkRead(b *testing.B) {
	for name, n := range map[string]qdisc.Netem{"drop": {Loss: 20}, "queue": {Loss: 20, Delay: ms}} {
		b.Run(name, func(b *testing.B) {
			l, e := newLab(b), newEngine(b, Config{})
			set(b, e, l.place, n)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.Read(ctx, l.place); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkArm(b *testing.B) {
	for name, n := range map[string]qdisc.Netem{"drop": {Loss: 20}, "queue": {Loss: 20, Delay: ms}} {
		b.Run(name, func(b *testing.B) {
			l := newLab(b)
			for b.Loop() {
				b.StopTimer()
				e, err := New(Config{})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := e.Set(ctx, l.place, n, in(time.Minute)); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// mode is one way that traffic goes.
type mode struct {
	name string
	n    *qdisc.Netem
}

// modes are what the benchmarks of traffic compare; bare has no engine at all. Frames
// are judged one by one, and leave together where they can; with a rate each has its
// own time, so each leaves alone.
var modes = []mode{
	{"bare", nil},
	{"drop 0%", &qdisc.Netem{}},
	{"queue whole", &qdisc.Netem{Delay: time.Microsecond}},
	{"queue frames", &qdisc.Netem{Delay: time.Microsecond, Loss: 1e-7}},
	{"queue alone", &qdisc.Netem{Delay: time.Microsecond, Rate: 12_500_000_000}},
	{"queue whole 1ms", &qdisc.Netem{Delay: ms}},
	{"netem", &qdisc.Netem{Delay: time.Microsecond}},
}

// each runs f in each mode, and reports what the engine counted.
func each(b *testing.B, modes []mode, f func(b *testing.B, l *lab)) {
	for _, m := range modes {
		b.Run(m.name, func(b *testing.B) {
			l := newLab(b)
			switch {
			case strings.HasPrefix(m.name, "netem"):
				l.netem(b, *m.n)
			case m.n != nil:
				e := newEngine(b, Config{})
				set(b, e, l.place, *m.n)
				defer func() {
					c := counters(b, e, l.place)
					b.ReportMetric(float64(c.Overflow), "overflow")
					b.ReportMetric(float64(c.Opened), "opened")
				}()
			}
			f(b, l)
		})
	}
}

// netem makes the kernel's own the root of the client's device, where there is one.
func (l *lab) netem(b *testing.B, n qdisc.Netem) {
	var err error
	l.in(b, l.client, func() error {
		err = netlink.QdiscReplace(netlink.NewNetem(
			netlink.QdiscAttrs{LinkIndex: l.place.Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0)},
			netlink.NetemQdiscAttrs{Latency: uint32(n.Delay / time.Microsecond), Limit: qdisc.DefaultLimit},
		))
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) && !inVM {
		b.Skipf("this kernel has no sch_netem: %v", err)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPackets sends 64-byte datagrams as fast as one thread can, and counts what
// comes to the receiver's device; nobody reads them there, since a third busy thread
// would measure the machine.
func BenchmarkPackets(b *testing.B) {
	each(b, modes, func(b *testing.B, l *lab) {
		var in, out *net.UDPConn
		to := &net.UDPAddr{IP: net.ParseIP(server4), Port: port}
		l.in(b, l.server, func() (err error) { in, err = net.ListenUDP("udp", to); return err })
		defer in.Close()
		l.in(b, l.client, func() (err error) { out, err = net.DialUDP("udp", nil, to); return err })
		defer out.Close()
		packet := make([]byte, 64)
		before, start := l.received(b), time.Now()
		for b.Loop() {
			_, _ = out.Write(packet)
		}
		b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "packets/s")
		time.Sleep(100 * ms)
		b.ReportMetric(100*float64(l.received(b)-before)/float64(b.N), "%arrived")
	})
}

// received counts the packets that came to the server's device.
func (l *lab) received(b *testing.B) (n uint64) {
	l.in(b, l.server, func() error {
		link, err := netlink.LinkByName("veth0")
		if err == nil {
			n = link.Attrs().Statistics.RxPackets
		}
		return err
	})
	return n
}

func BenchmarkTCP(b *testing.B) {
	each(b, modes, func(b *testing.B, l *lab) {
		client, peer := l.connect(b, server4)
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		chunk := make([]byte, 256<<10)
		b.SetBytes(int64(len(chunk)))
		start := time.Now()
		for b.Loop() {
			if _, err := client.Write(chunk); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*float64(len(chunk))*8/1e9/time.Since(start).Seconds(), "Gbit/s")
	})
}

// BenchmarkDelay reports how much longer than the delay single packets take, from the
// sender's call to the kernel's time stamp at the receiver; bare is what the way itself
// takes.
func BenchmarkDelay(b *testing.B) {
	for _, delay := range []time.Duration{0, 5 * ms} {
		n := &qdisc.Netem{Delay: delay}
		modes := []mode{{"queue " + delay.String(), n}, {"netem " + delay.String(), n}}
		if delay == 0 {
			modes = []mode{{"bare", nil}}
		}
		each(b, modes, func(b *testing.B, l *lab) {
			var in, out *net.UDPConn
			to := &net.UDPAddr{IP: net.ParseIP(server4), Port: port}
			l.in(b, l.server, func() (err error) { in, err = net.ListenUDP("udp", to); return err })
			defer in.Close()
			l.in(b, l.client, func() (err error) { out, err = net.DialUDP("udp", nil, to); return err })
			defer out.Close()
			raw, err := in.SyscallConn()
			if err != nil {
				b.Fatal(err)
			}
			_ = raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
			})
			if err != nil {
				b.Fatal(err)
			}
			done := make(chan []time.Duration)
			go func() {
				var late []time.Duration
				defer func() { done <- late }()
				packet, control := make([]byte, 64), make([]byte, 64)
				for {
					_, k, _, _, err := in.ReadMsgUDP(packet, control)
					if err != nil {
						return
					}
					messages, err := unix.ParseSocketControlMessage(control[:k])
					if err != nil || len(messages) != 1 || len(messages[0].Data) < 16 {
						b.Error("no time stamp", err)
						return
					}
					at := time.Duration(binary.NativeEndian.Uint64(messages[0].Data))*time.Second +
						time.Duration(binary.NativeEndian.Uint64(messages[0].Data[8:]))
					late = append(late, at-time.Duration(binary.NativeEndian.Uint64(packet))-delay)
				}
			}()
			packet := make([]byte, 64)
			for b.Loop() {
				binary.NativeEndian.PutUint64(packet, uint64(time.Now().UnixNano()))
				_, _ = out.Write(packet)
				time.Sleep(ms)
			}
			time.Sleep(delay + 100*ms)
			in.Close()
			late := <-done
			slices.Sort(late)
			if len(late) > 0 {
				us := func(i int) float64 { return float64(late[i]) / float64(time.Microsecond) }
				b.ReportMetric(us(len(late)/2), "p50-us")
				b.ReportMetric(us(len(late)*99/100), "p99-us")
			}
		})
	}
}

// BenchmarkMemory holds 100,000 IP packets of a size, and reports what each of them
// takes of this process's memory.
func BenchmarkMemory(b *testing.B) {
	const held = 100_000
	for _, size := range []int{128, 1500} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l, e := newLab(b), newEngine(b, Config{})
				p := onPort(l.place)
				set(b, e, p, qdisc.Netem{Delay: time.Minute})
				f := l.newFlow(b, client4, server4, 0, port)
				before := heap()
				b.StartTimer()
				packet := make([]byte, size-28)
				waits := uint64(0)
				for sent := uint64(0); sent < held; {
					for range 500 {
						if _, err := f.out.Write(packet); err != nil {
							b.Fatal(err)
						}
						sent++
					}
					// A busy machine may let some pass.
					until(b, "the queue to take them", time.Minute, func() bool {
						st, err := e.Read(ctx, p)
						waits = st.Queued
						return err == nil && waits+st.Counters.Overflow+st.Counters.Late+st.Counters.Opened == sent
					})
				}
				b.StopTimer()
				b.ReportMetric(float64(heap()-before)/float64(waits), "B/packet")
				if err := e.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}

// heap is what is in use once everything unused is gone.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapInuse
}
