package netem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	tcx "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"netemd/internal/fault"
	"netemd/internal/match"
	"netemd/internal/target"
)

// entry is our program at a device's tcx hook. It ends with this process.
type entry struct {
	link    tcx.Link
	program *ebpf.Program
	// number is that of the program; 0 for one that must be replaced.
	number uint32
	// to is where the selected packets go.
	to int
	// count is their count, a super-packet as its segments; it outlives the program.
	count *ebpf.Map
}

// Offsets in struct __sk_buff of linux/bpf.h.
const (
	skbScratch  = 48 // cb, 5 words
	skbSegments = 164
)

// What a gate writes to a packet's scratch space says to our programs at the device
// that it has had its fault; the third word is the device's index. Between the gate and
// the device nothing else writes there, and behind it the kernel uses it for other things.
const (
	passMagic1 = 0x4e455445
	passMagic2 = 0x4d442d31
)

// verdictNext is TCX_NEXT, and TC_ACT_UNSPEC: the next program decides.
const verdictNext = -1

// selector assembles the program that sends what m selects to the device to, but for
// what comes back from there to device's egress. At ingress nothing comes back to the
// hook (skb_skip_tc_classify in __netif_receive_skb_core).
func selector(m target.Match, header int, hook target.Hook, device, to int, count *ebpf.Map) (asm.Instructions, error) {
	var s match.Sequence
	s.Add(asm.Mov.Reg(match.Skb, asm.R1))
	if hook == target.Egress {
		for i, want := range []int32{passMagic1, passMagic2, int32(device)} {
			s.Add(
				asm.LoadMem(asm.R1, match.Skb, skbScratch+4*int16(i), asm.Word),
				asm.JNE.Imm(asm.R1, want, "fresh"),
			)
		}
		s.Add(asm.Ja.Label("pass"))
		s.At("fresh")
	}
	if err := s.Select(m, header, "pass"); err != nil {
		return nil, err
	}
	s.Add(
		asm.LoadMem(asm.R1, match.Skb, skbSegments, asm.Word),
		asm.JNE.Imm(asm.R1, 0, "count"),
		asm.Mov.Imm(asm.R1, 1),
	)
	s.At("count")
	s.Add(
		asm.LoadMapValue(asm.R2, count.FD(), 0),
		asm.AddAtomic.Mem(asm.R2, asm.R1, asm.DWord, 0),
		asm.Mov.Imm(asm.R1, int32(to)), asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(), asm.Return(),
	)
	s.At("pass")
	s.Add(asm.Mov.Imm(asm.R0, verdictNext), asm.Return())
	return s.Instructions(), nil
}

// haveTCX reports whether the kernel has tcx (Linux 6.6 or later), by attaching to a
// device that does not exist.
var haveTCX = sync.OnceValue(func() bool {
	prog, err := match.Load("netemd_try", asm.Instructions{asm.Mov.Imm(asm.R0, verdictNext), asm.Return()})
	if err != nil {
		return false
	}
	defer func() { _ = prog.Close() }()
	_, err = tcx.AttachTCX(tcx.TCXOptions{Interface: 1<<31 - 1, Program: prog, Attach: ebpf.AttachTCXIngress})
	return !errors.Is(err, ebpf.ErrNotSupported)
})

// hold sends x's flow to its netem by a tcx program.
func (c *conn) hold(x *detour, l link, header int, made *undo) error {
	old := x.entry
	if old != nil && old.attached(l) != nil {
		x.settle()
		old = nil
	}
	if old != nil && old.number != 0 && old.to == x.ifb.index {
		return nil
	}
	now := entry{to: x.ifb.index}
	if old != nil {
		now.link, now.count = old.link, old.count
	} else {
		count, err := newCount()
		if err != nil {
			return err
		}
		now.count = count
	}
	ins, err := selector(x.at.Match, header, x.at.Hook, l.index, now.to, now.count)
	if err == nil {
		now.program, now.number, err = loadProgram(match.SelectProgram, ins)
	}
	if err == nil {
		if old != nil {
			err = old.link.Update(now.program)
		} else {
			err = c.ns.Do(context.Background(), func() error { return now.attach(l, x.at.Hook) })
		}
	}
	if err != nil {
		err = fmt.Errorf("netem: %s: %w", x.at, err)
		if now.program != nil {
			err = errors.Join(err, now.program.Close())
		}
		if old == nil {
			err = errors.Join(err, now.count.Close())
		}
		return err
	}
	x.entry = &now
	// One that was there stays, unless its new ifb does not: what it sends to one that is
	// gone is lost.
	if old == nil || old.to != now.to {
		made.push(now.detach)
	}
	if old != nil {
		_ = old.program.Close()
	}
	failAt("netem.filter.set")
	return now.attached(l)
}

// attach attaches n's program in the namespace of the calling thread.
func (n *entry) attach(l link, hook target.Hook) (err error) {
	at := attachType(hook)
	n.link, err = tcx.AttachTCX(tcx.TCXOptions{Interface: l.index, Program: n.program, Attach: at, Anchor: anchor(l, at)})
	switch {
	case errors.Is(err, unix.ENODEV):
		err = fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	case errors.Is(err, unix.ERANGE):
		err = fault.FullHook(err)
	}
	return err
}

// newCount makes a count of selected packets.
func newCount() (*ebpf.Map, error) {
	count, err := ebpf.NewMap(&ebpf.MapSpec{Name: "netemd_count", Type: ebpf.Array, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(uint64(0))), MaxEntries: 1})
	if err != nil {
		return nil, fmt.Errorf("make the count of selected packets: %w", err)
	}
	return count, nil
}

// anchor is where our program goes: before all others, since a verdict there would end
// a packet's way; but behind those of the ebpf engine. That one's queue sends its
// packets anew, which would meet a program of ours before it twice at egress, and what
// comes back from an ifb to ingress meets none behind ours.
func anchor(l link, at ebpf.AttachType) tcx.Anchor {
	found, err := tcx.QueryPrograms(tcx.QueryOptions{Target: l.index, Attach: at})
	if err != nil {
		return tcx.Head()
	}
	for _, p := range slices.Backward(found.Programs) {
		if name, _ := match.ProgramName(p.ID); name == match.EgressProgram || name == match.IngressProgram {
			if id, ok := p.LinkID(); ok {
				return tcx.AfterLinkByID(id)
			}
		}
	}
	return tcx.Head()
}

// attached is fs.ErrNotExist when the program is no longer at the device, or another
// one is in its place.
func (n *entry) attached(l link) error {
	info, err := n.link.Info()
	if err != nil {
		return fmt.Errorf("tcx link at %s: %w: %w", l.name, fs.ErrNotExist, err)
	}
	if x := info.TCX(); x == nil || int(x.Ifindex) != l.index || n.number != 0 && uint32(info.Program) != n.number {
		return fmt.Errorf("tcx link %d at %s: %w", info.ID, l.name, fs.ErrNotExist)
	}
	return nil
}

// packets is how many packets were selected, ever.
func (n *entry) packets() uint64 {
	var count uint64
	if err := n.count.Lookup(uint32(0), &count); err != nil {
		return 0
	}
	return count
}

// detach takes the program away. What is gone already is no error.
func (n *entry) detach() error {
	return errors.Join(n.link.Close(), n.program.Close(), n.count.Close())
}

// settle closes the entry of x and keeps its count.
func (x *detour) settle() {
	if x.entry == nil {
		return
	}
	x.seen, x.before = x.seen+x.entry.packets()-x.before, 0
	_ = x.entry.detach()
	x.entry = nil
}

// restore makes x what it was before something failed. A program that has been replaced
// meanwhile is closed by then, so the one that is at the hook must be replaced.
func (x *detour) restore(before detour) {
	now := x.entry
	*x = before
	if x.entry == nil || now == nil || now.link != x.entry.link || now.program == x.entry.program {
		return
	}
	entry := *now
	entry.number = 0
	x.entry = &entry
}
