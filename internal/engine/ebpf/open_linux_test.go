package ebpf

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"netemd/internal/child"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// order is what a holder process shall do.
type order struct {
	Place    target.Place
	Netem    qdisc.Netem
	Lifetime time.Duration
	Clsact   bool
}

func init() { child.Register("ebpf-holder", hold) }

// hold is a process with an engine, until its standard input ends.
func hold([]string) int {
	var o order
	in := json.NewDecoder(os.Stdin)
	if err := in.Decode(&o); err != nil {
		fmt.Println(err)
		return 1
	}
	e, err := New(Config{Clsact: o.Clsact})
	if err == nil {
		err = e.Set(context.Background(), o.Place, o.Netem, time.Now().Add(o.Lifetime))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := e.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// holder starts such a process; it is killed and waited for at the end of the test.
func holder(t *testing.T, o order) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", child.Args("ebpf-holder")...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	if err := json.NewEncoder(in).Encode(o); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
		t.Fatalf("holder: %q, %v", line, err)
	}
	return cmd
}

// A killed or stopped engine costs at most 100 ms of traffic.
func TestFailOpen(t *testing.T) {
	modes := map[string]qdisc.Netem{
		"drop":  {Loss: 100},
		"queue": {Loss: 100, Delay: 10 * time.Millisecond},
	}
	signals := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}
	both(t, func(t *testing.T, cfg Config) {
		for mode, n := range modes {
			for name, sig := range signals {
				t.Run(mode+" "+name, func(t *testing.T) {
					l := newLab(t)
					f := l.newFlow(t, client4, server4, 0, port)
					cmd := holder(t, order{Place: l.place, Netem: n, Lifetime: time.Minute, Clsact: cfg.Clsact})
					f.send(100, 64, time.Millisecond)
					before := f.drain(10 * time.Millisecond)
					if len(before) > 0 {
						t.Errorf("%d arrived at 100%% loss", len(before))
					}
					at := now()
					if err := cmd.Process.Signal(sig); err != nil {
						t.Fatal(err)
					}
					f.send(300, 64, time.Millisecond)
					limit := at + int64(slower(100*time.Millisecond))
					want := f.next
					for i, a := range f.drain(20 * time.Millisecond) {
						if i == 0 {
							t.Logf("open after %s", time.Duration(a.sent-at))
							if a.sent > limit {
								t.Errorf("closed for %s", time.Duration(a.sent-at))
							}
							want = a.number
						}
						if a.number != want {
							t.Fatalf("packet %d is missing after the opening", want)
						}
						want++
					}
					if want != f.next {
						t.Errorf("the last packet is %d, want %d", want, f.next)
					}
				})
			}
		}
	})
}

// The deadline passes while the process is stopped: the fault must not come back
// with the process.
func TestDeadlineOfAStoppedProcess(t *testing.T) {
	for mode, n := range map[string]qdisc.Netem{
		"drop":  {Loss: 100},
		"queue": {Loss: 100, Delay: 10 * time.Millisecond},
	} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t)
			f := l.newFlow(t, client4, server4, 0, port)
			lifetime := slower(300 * time.Millisecond)
			cmd := holder(t, order{Place: l.place, Netem: n, Lifetime: lifetime})
			if got := len(f.burst(10)); got != 0 {
				t.Errorf("%d arrived at 100%% loss", got)
			}
			_ = cmd.Process.Signal(syscall.SIGSTOP)
			time.Sleep(lifetime * 4 / 3)
			_ = cmd.Process.Signal(syscall.SIGCONT)
			time.Sleep(slower(50 * time.Millisecond))
			if got := len(f.burst(100)); got != 100 {
				t.Errorf("%d of 100 arrived after the deadline", got)
			}
		})
	}
}

// qdiscs says which kinds of qdiscs and how many filters a place's device has.
func (l *lab) filters(t testing.TB, p target.Place) (kinds string, count int) {
	t.Helper()
	l.in(t, p.Namespace, func() error {
		link, err := netlink.LinkByIndex(p.Index)
		if err != nil {
			return err
		}
		all, err := netlink.QdiscList(link)
		if err != nil {
			return err
		}
		for _, q := range all {
			kinds += q.Type() + " "
		}
		for _, hook := range []target.Hook{target.Egress, target.Ingress} {
			fs, err := filters(p.Index, hook)
			if err != nil {
				return err
			}
			count += len(fs)
		}
		return nil
	})
	return kinds, count
}

// sweptIn sweeps the namespace of that name.
func sweptIn(name string) (removed []string, err error) {
	err = namespaces.Within(name, func(ns *namespaces.Session) (err error) {
		removed, err = Sweep(ctx, ns)
		return err
	})
	return removed, err
}

// What a killed engine leaves on clsact is swept away; a living one's and foreign
// filters stay.
func TestSweep(t *testing.T) {
	l := newLab(t)
	o := order{Place: l.place, Netem: qdisc.Netem{Loss: 100}, Lifetime: time.Minute, Clsact: true}
	dead := holder(t, o)
	alive := order{Place: l.peer, Netem: qdisc.Netem{Loss: 10}, Lifetime: time.Minute, Clsact: true}
	holder(t, alive)
	_ = dead.Process.Kill()
	_ = dead.Wait()
	if kinds, n := l.filters(t, l.place); kinds != "noqueue clsact " || n != 1 {
		t.Fatalf("a killed engine left %q with %d filters, want one on clsact", kinds, n)
	}
	for _, name := range []string{l.client, l.server, l.client, l.server} {
		removed, err := sweptIn(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("removed %q", removed)
	}
	if kinds, n := l.filters(t, l.place); kinds != "noqueue " || n != 0 {
		t.Errorf("after the sweep: %q with %d filters", kinds, n)
	}
	if kinds, n := l.filters(t, l.peer); kinds != "noqueue clsact " || n != 1 {
		t.Errorf("the living engine's: %q with %d filters", kinds, n)
	}
}

// A clsact that was there, and its filters, stay.
func TestForeignClsactStays(t *testing.T) {
	l := newLab(t)
	tc := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("tc", append([]string{"-n", l.client}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("tc %v: %v: %s", args, err, out)
		}
	}
	tc("qdisc", "add", "dev", "veth0", "clsact")
	o := order{Place: l.place, Netem: qdisc.Netem{Loss: 100}, Lifetime: time.Minute, Clsact: true}
	dead := holder(t, o)
	_ = dead.Process.Kill()
	_ = dead.Wait()
	if _, err := sweptIn(l.client); err != nil {
		t.Fatal(err)
	}
	if kinds, n := l.filters(t, l.place); kinds != "noqueue clsact " || n != 0 {
		t.Errorf("after the sweep: %q with %d filters", kinds, n)
	}
	tc("filter", "add", "dev", "veth0", "egress", "protocol", "all", "prio", "1", "u32", "match", "u32", "0", "0", "classid", "1:1")
	e := newEngine(t, Config{Clsact: true})
	if err := e.Set(ctx, l.place, qdisc.Netem{Loss: 100}, in(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if kinds, n := l.filters(t, l.place); kinds != "noqueue clsact " || n == 0 {
		t.Errorf("after close: %q with %d filters", kinds, n)
	}
}

// counter is a foreign tcx program that counts packets of one size.
type counter struct {
	m    *ebpf.Map
	link link.Link
	prog *ebpf.Program
}

func newCounter(t *testing.T, p target.Place, anchor link.Anchor) *counter {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 0, asm.Word),
		asm.JNE.Imm(asm.R2, 64+28+14, "pass"),
		asm.LoadMapValue(asm.R7, m.FD(), 0), asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(asm.R7, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{m: m, prog: prog}
	err = namespaces.Do(ctx, p.Namespace, func() (err error) {
		c.link, err = link.AttachTCX(link.TCXOptions{
			Interface: p.Index, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: anchor,
		})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.link.Close()
		c.prog.Close()
		c.m.Close()
	})
	return c
}

func (c *counter) count(t *testing.T) uint64 {
	t.Helper()
	var v uint64
	if err := c.m.Lookup(uint32(0), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// A foreign program behind ours sees every surviving packet once, whether it was
// there before or came later; so it does after ours went.
func TestForeignProgram(t *testing.T) {
	needTCX(t)
	for mode, n := range map[string]qdisc.Netem{
		"drop":  {Loss: 20},
		"queue": {Loss: 20, Delay: 5 * time.Millisecond},
	} {
		t.Run(mode, func(t *testing.T) {
			l, e := newLab(t), newEngine(t, Config{})
			f := l.newFlow(t, client4, server4, 0, port)
			before := newCounter(t, l.place, link.Tail())
			if err := e.Set(ctx, l.place, n, in(time.Minute)); err != nil {
				t.Fatal(err)
			}
			after := newCounter(t, l.place, link.Tail())
			got := uint64(len(f.burst(2000)))
			if b, a := before.count(t), after.count(t); got == 2000 || b != got || a != got {
				t.Errorf("%d of 2000 arrived, the foreign programs saw %d and %d", got, b, a)
			}
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			if got := len(f.burst(100)); got != 100 || before.count(t) != after.count(t) {
				t.Errorf("after close: %d of 100 arrived, seen %d and %d", got, before.count(t), after.count(t))
			}
		})
	}
}
