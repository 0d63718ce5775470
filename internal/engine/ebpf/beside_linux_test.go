package ebpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// besideSize is the payload of the packets that the programs and sniffers here count.
const besideSize = 117

// foreign is somebody else's tcx program, which counts packets of besideSize at either
// hook.
type foreign struct {
	m    *ebpf.Map
	link link.Link
}

func newForeign(t testing.TB, p target.Place, anchor link.Anchor) *foreign {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Name: "foreign", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word), // __sk_buff.len
		asm.JNE.Imm(asm.R2, besideSize+28+14, "pass"),
		asm.LoadMapValue(asm.R7, m.FD(), 0), asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R7, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, verdictNext).WithSymbol("pass"), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	f := &foreign{m: m}
	at := ebpf.AttachTCXEgress
	if p.Hook == target.Ingress {
		at = ebpf.AttachTCXIngress
	}
	err = namespaces.Do(ctx, p.Namespace, func() (err error) {
		f.link, err = link.AttachTCX(link.TCXOptions{Interface: p.Index, Program: prog, Attach: at, Anchor: anchor})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.link.Close()
		prog.Close()
		m.Close()
	})
	return f
}

// count is how many packets it saw since the last call.
func (f *foreign) count(t testing.TB) int {
	t.Helper()
	var n uint64
	if err := f.m.Lookup(uint32(0), &n); err != nil {
		t.Fatal(err)
	}
	if err := f.m.Put(uint32(0), uint64(0)); err != nil {
		t.Fatal(err)
	}
	return int(n)
}

// ours counts the packets of besideSize among those that a sniffer took.
func ours(all []seen, outgoing bool) (n int) {
	for _, s := range all {
		if s.outgoing == outgoing && len(s.frame) == besideSize+28+14 {
			n++
		}
	}
	return n
}

// shape gives the client's device a root tbf.
func (l *lab) shape(t testing.TB, bytesPerSecond uint64) {
	t.Helper()
	l.in(t, l.client, func() error {
		return netlink.QdiscReplace(&netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.place.Index, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(9, 0)},
			// Buffer is in ticks of psched, 64 ns each, that the burst takes at the rate.
			Rate: bytesPerSecond, Limit: 8 << 20, Buffer: uint32(4000 * uint64(time.Second/64) / bytesPerSecond),
		})
	})
}

var besideModes = []struct {
	name string
	n    qdisc.Netem
}{
	{"drop", qdisc.Netem{Loss: 1e-6}},
	{"whole", qdisc.Netem{Delay: 2 * ms}},
	{"frames", qdisc.Netem{Delay: 2 * ms, Loss: 1e-6}},
}

// On a device with a root tbf, programs of others before and behind ours, a sniffer
// and no segmentation offload, each packet is seen once by all of them, and the tbf
// holds its rate.
func TestBesideOthers(t *testing.T) {
	const sent = 200
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		t.Run(string(hook), func(t *testing.T) {
			both(t, func(t *testing.T, cfg Config) {
				tcx := !cfg.Clsact && hasTCX()
				if brief() && !tcx && hasTCX() {
					t.Skip("the old way is tried on the kernel that has no other")
				}
				l, e := newLab(t), newEngine(t, cfg)
				p := l.place
				if hook == target.Ingress {
					p = l.at(t, l.server, target.Ingress)
				}
				l.shape(t, 4<<20)
				for _, ns := range []string{l.client, l.server} {
					l.setOffloads(t, ns, "veth0", false)
				}
				var before, behind *foreign
				if tcx {
					behind = newForeign(t, p, link.Head())
				}
				set(t, e, p, qdisc.Netem{})
				if tcx {
					before = newForeign(t, p, link.Head())
				}
				kinds, _ := l.filters(t, l.place)
				s := l.newSniffer(t, p.Namespace, "veth0")
				f := l.newFlow(t, client4, server4, 0, port)
				for _, m := range besideModes {
					_, c := steady(t, e, p, m.n, func() []arrival {
						counters(t, e, p) // the agent looks every 500 ms
						s.take()
						if tcx {
							before.count(t)
							behind.count(t)
						}
						f.send(sent, besideSize, 100*time.Microsecond)
						got := f.collect(sent)
						for end := time.Now().Add(slower(time.Second)); s.count() < sent && time.Now().Before(end); {
							time.Sleep(ms)
						}
						return got
					})
					if int(c.Seen) < sent || c.Overflow > 0 {
						t.Errorf("%s: %+v", m.name, c)
					}
					if tcx {
						if a, b := before.count(t), behind.count(t); a != sent || b != sent {
							t.Errorf("%s: the program before ours saw %d of %d packets, the one behind %d", m.name, a, sent, b)
						}
					}
					want := sent
					if hook == target.Ingress && m.name != "drop" {
						want *= 2 // as it comes, and as it is let in: see the package's text
					}
					if n := ours(s.take(), hook == target.Egress); n != want {
						t.Errorf("%s: a sniffer saw %d packets, want %d", m.name, n, want)
					}
				}
				if after, _ := l.filters(t, l.place); after != kinds {
					t.Errorf("qdiscs %q, before %q", after, kinds)
				}
			})
		})
	}
}

// Programs of others stay where they are and see what ours let through, while ours
// go, are moved, and end.
func TestOthersComeFirst(t *testing.T) {
	needTCX(t)
	const sent = 500
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	whole := l.place
	f := l.newFlow(t, client4, server4, 0, port)
	// Two places of ours, the later one first, and somebody before both.
	set(t, e, p, qdisc.Netem{Delay: 20 * ms})
	set(t, e, whole, qdisc.Netem{Delay: 20 * ms})
	first := newForeign(t, p, link.Head())
	second := newForeign(t, p, link.Head())
	for range 2 { // each place sees to itself
		counters(t, e, p)
		counters(t, e, whole)
	}
	var got []arrival
	undisturbed(t, func() string {
		for _, at := range []target.Place{p, whole} {
			if err := e.Clear(ctx, at); err != nil {
				t.Fatal(err)
			}
			set(t, e, at, qdisc.Netem{Delay: 20 * ms})
		}
		first.count(t)
		second.count(t)
		f.send(sent, besideSize, 100*time.Microsecond)
		got = f.collect(sent)
		return waited(counters(t, e, p), counters(t, e, whole))
	})
	if a, b := first.count(t), second.count(t); len(got) != sent || a != sent || b != sent {
		t.Errorf("%d of %d arrived; the others saw %d and %d", len(got), sent, a, b)
	}
	if least(got) < 40*ms {
		t.Errorf("delayed by %s, want 40ms", least(got))
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	f.send(sent, besideSize, 100*time.Microsecond)
	if n := len(f.collect(sent)); n != sent || first.count(t) != sent || second.count(t) != sent {
		t.Errorf("after close %d of %d arrived", n, sent)
	}
}

// The device's own shaper acts on what a queue sends as on everything else.
func TestShaperHolds(t *testing.T) {
	const (
		sent, size = 200, 958 // 1000 bytes with the headers
		rate       = 400_000
		burst      = 4000
	)
	l, e := newLab(t), newEngine(t, Config{})
	l.shape(t, rate)
	f := l.newFlow(t, client4, server4, 0, port)
	run := func() time.Duration {
		t.Helper()
		start := now()
		f.send(sent, size, 0)
		got := f.collect(sent)
		if len(got) != sent {
			t.Fatalf("%d of %d arrived", len(got), sent)
		}
		return time.Duration(got[sent-1].at - start)
	}
	least := time.Duration(sent*1000-burst) * time.Second / rate * 98 / 100
	bare := run()
	for _, m := range besideModes {
		t.Run(m.name, func(t *testing.T) {
			var took time.Duration
			_, c := steady(t, e, onPort(l.place), m.n, func() []arrival {
				took = run()
				return nil
			})
			t.Logf("%d bytes took %s, bare %s; %+v", sent*1000, took, bare, c)
			if took < least || bare < least {
				t.Errorf("%d bytes at %d bytes/s took %s, bare %s, want %s or more", sent*1000, rate, took, bare, least)
			}
			if took > bare+slower(250*ms) {
				t.Errorf("took %s, bare %s", took, bare)
			}
		})
	}
	if kinds, _ := l.filters(t, l.place); kinds[:4] != "tbf " {
		t.Errorf("qdiscs %q", kinds)
	}
}

// A bulk of TCP through a shaper on a device without segmentation offload.
func TestTCPWithoutOffload(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	l.shape(t, 2<<20)
	for _, ns := range []string{l.client, l.server} {
		l.setOffloads(t, ns, "veth0", false)
	}
	for _, m := range besideModes {
		t.Run(m.name, func(t *testing.T) {
			set(t, e, l.place, m.n)
			start := time.Now()
			l.exchangeTCP(t, path{client4, server4}, 300<<10)
			took, c := time.Since(start), counters(t, e, l.place)
			t.Logf("%s; %+v", took, c)
			const least = 300 * time.Second / 2048 * 9 / 10 // the burst is 4 KB
			if took < least || c.Overflow > 0 {
				t.Errorf("300 KB at 2 MB/s took %s; %+v", took, c)
			}
		})
	}
}
