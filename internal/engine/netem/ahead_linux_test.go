package netem

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	tcx "github.com/cilium/ebpf/link"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// stranger is a program of somebody else that lets everything pass.
func stranger(t *testing.T, typ ebpf.ProgramType, verdict int32) *ebpf.Program {
	t.Helper()
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "stranger", Type: typ, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, verdict), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = prog.Close() })
	return prog
}

// attachAt attaches in b.near until the test ends.
func (b *bench) attachAt(t *testing.T, attach func() (tcx.Link, error)) {
	t.Helper()
	err := namespaces.Do(t.Context(), b.near, func() error {
		l, err := attach()
		if err == nil {
			t.Cleanup(func() { _ = l.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Whose program may take packets before the fault sees them is said.
func TestSaysWhatIsAhead(t *testing.T) { bothWays(t, testSaysWhatIsAhead) }

func testSaysWhatIsAhead(t *testing.T) {
	b := newBench(t)
	if clsactOnly {
		b.tc(t, "qdisc add dev v0 clsact") // to make one is a note, too
	}
	e := detourEngine(t, b.near)
	const xdpPass = 2
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		p := b.foreign(hook, udp)
		var want []string
		check := func(what string) {
			t.Helper()
			e.must(t, p, qdisc.Netem{Delay: ms})
			notes := e.Notes(p)
			if len(notes) != len(want) {
				t.Fatalf("%s, %s: notes %q, want %d", hook, what, notes, len(want))
			}
			for i, part := range want {
				if !strings.Contains(notes[i], part) {
					t.Errorf("%s, %s: note %q, want %q in it", hook, what, notes[i], part)
				}
			}
		}
		check("alone")
		if haveTCX() {
			prog := stranger(t, ebpf.SchedCLS, verdictNext)
			at := func(anchor tcx.Anchor) {
				b.attachAt(t, func() (tcx.Link, error) {
					return tcx.AttachTCX(tcx.TCXOptions{Interface: p.Index, Program: prog, Attach: attachType(hook), Anchor: anchor})
				})
			}
			if !clsactOnly {
				at(tcx.Tail())
				check("a program behind it")
				prog = stranger(t, ebpf.SchedCLS, verdictNext)
			}
			at(tcx.Head())
			want = append(want, `a tcx program, "stranger"`)
			check("a program ahead")
		}
		if hook == target.Ingress {
			prog := stranger(t, ebpf.XDP, xdpPass)
			b.attachAt(t, func() (tcx.Link, error) {
				return tcx.AttachXDP(tcx.XDPOptions{Program: prog, Interface: p.Index, Flags: tcx.XDPGenericMode})
			})
			want = append(want, "an XDP program")
			check("an XDP program")
		}
	}
}

// Agents that make and take away the clsact of one device at the same time take
// nothing from each other.
func TestAgentsShareADoor(t *testing.T) {
	b := newBench(t)
	before := b.tree(t)
	lives := 20
	if testing.Short() {
		lives = 8
	}
	done := make(chan error)
	for i, state := range []string{"one agent", "another agent"} {
		e := detourEngine(t, state)
		e.clsactOnly = true
		p := b.foreign(target.Egress, toPort(uint16(80+i)))
		go func() {
			done <- func() error {
				for range lives {
					if err := e.Set(t.Context(), p, qdisc.Netem{Delay: ms}, time.Time{}); err != nil {
						return err
					}
					st, err := e.Read(t.Context(), p)
					if err != nil || st.Netem.Delay != ms {
						t.Errorf("%s: %v is in force, %v", state, st.Netem, err)
					}
					if err := e.Clear(t.Context(), p); err != nil {
						return err
					}
					e.drains.Wait()
				}
				return nil
			}()
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if after := b.tree(t); after != before {
		t.Errorf("left:\n%s", after)
	}
}

// What an engine remembers of a device goes with its last fault, or with its namespace.
func TestForgets(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	p := b.foreign(target.Egress, udp)
	for range 3 {
		e.must(t, p, qdisc.Netem{Delay: ms})
		if err := e.Clear(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		e.drains.Wait()
		if _, err := e.Read(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.devices); n != 0 {
		t.Errorf("%d devices are remembered without a fault", n)
	}
	const many = 100
	for i := range many { // as devices of ours with a root, in a namespace that is gone
		d := e.device(key{"nt-netem-no-such", 1 + i})
		d.root.table = table{}
		d.mu.Unlock()
	}
	if n := len(e.devices); n > many/2 {
		t.Errorf("%d of %d devices of a namespace that is gone are remembered", n, many)
	}
	e.must(t, p, qdisc.Netem{Delay: ms})
}
