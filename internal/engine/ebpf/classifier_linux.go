package ebpf

import (
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/content"
	"netemd/internal/match"
	"netemd/internal/target"
)

// nowhere is an interface index that no device has. The kernel frees a packet
// that is redirected there and tells its sender that it was sent.
const nowhere = 0x7ffffff0

// Offsets in struct __sk_buff (linux/bpf.h), the program's context.
const (
	skbPacketType = 4
	skbMark       = 8
)

// verdictNext lets the next program or filter decide: TCX_NEXT and TC_ACT_UNSPEC.
const verdictNext = -1

// markOwn in the upper half of a mark says that a packet comes out of a queue of
// ours; the next 8 bits tell the engines of different agents apart. On ingress the
// lowest 8 bits are the queue's number at the hook; the classifier of its place clears the
// mark, so the stack never sees it.
const (
	markOwn  = 0x4e450000
	maxMarks = 0xff
)

// origin is the place that a packet of ours comes from.
type origin struct{ Rank, Hook uint32 }

// returnKey is where the origin of a queue at that hook's ingress is, with the queue's
// number in the lowest 8 bits; cookies of sockets are never so large.
func returnKey(hook uint32) uint64 { return 1<<63 | uint64(hook)<<8 }

// The classifier's registers and stack, beside what match uses.
const (
	rSkb  = match.Skb
	rPage = asm.R7
	rSlot = asm.R8
	rAux  = asm.R9

	stackCookie = -match.Stack - 8
)

// classifier is what a place's program is made of.
type classifier struct {
	hub, page, sockets *ebpf.Map
	match              target.Match
	hook               target.Hook
	// header is the length of the device's link header: 14, or 0 on a device that
	// carries bare IP.
	header int
	// group is one device's hook, and rank the place's position there: a program
	// with a higher rank comes first. Packets that come out of the queue of rank r
	// have passed all programs of rank r and above.
	group, rank uint32
	// mark is that of this engine's packets, without a rank.
	mark uint32
	// generation is the program's; it does nothing while the page has another.
	generation uint32
	// rule chooses packets; nil is a place for impairments. id is its place's number,
	// ring where it tells what it chose, and conns its connections if it needs them.
	rule  *content.Rule
	id    uint32
	ring  *ebpf.Map
	conns *conns
	// drops is where it tells what it dropped; nil where nobody can be told.
	drops *ebpf.Map
}

// inc adds one to the counter at offset in the page.
func inc(s *match.Sequence, offset uintptr) {
	s.Add(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(rPage, asm.R1, asm.DWord, int16(offset)))
}

// toTAP appends instructions that count the packet as diverted at the time in a register
// of its own, and have the device it goes to in R1. Of two processors at once, one may
// overwrite the other's time: loop.arrival makes the best of that.
func toTAP(s *match.Sequence, time asm.Register) {
	var p page
	s.Add(
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.diverted)), asm.DWord),
		asm.And.Imm(asm.R1, arrivals-1),
		asm.LSh.Imm(asm.R1, 3),
		asm.Add.Reg(asm.R1, rPage),
		asm.StoreMem(asm.R1, int16(unsafe.Offsetof(p.arrived)), time, asm.DWord),
	)
	inc(s, unsafe.Offsetof(p.diverted))
	s.Add(asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.tap)), asm.Word))
}

// program assembles the classifier.
func (c *classifier) program() (asm.Instructions, error) {
	var (
		s match.Sequence
		p page
		l slot
	)
	s.Add(asm.Mov.Reg(rSkb, asm.R1))
	if c.hook == target.Ingress {
		c.ownMark(&s)
	}
	s.Add(
		asm.LoadMapValue(rPage, c.page.FD(), 0),
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.generation)), asm.Word),
		asm.JNE.Imm(asm.R1, int32(c.generation), "pass"),
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.active)), asm.Word),
		asm.JEq.Imm(asm.R1, 0, "pass"),
		asm.Sub.Imm(asm.R1, 1),
		asm.And.Imm(asm.R1, slots-1),
		asm.Mul.Imm(asm.R1, int32(unsafe.Sizeof(l))),
		asm.Mov.Reg(rSlot, rPage),
		asm.Add.Imm(rSlot, int32(unsafe.Offsetof(p.slots))),
		asm.Add.Reg(rSlot, asm.R1),
	)
	if err := s.Select(c.match, c.header, "pass"); err != nil {
		return nil, err
	}
	if c.hook == target.Egress {
		c.ownCookie(&s)
	}
	s.Add(
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(rAux, asm.R0),
		asm.LoadMem(asm.R1, rSlot, int16(unsafe.Offsetof(l.deadline)), asm.DWord),
		asm.JGE.Reg(rAux, asm.R1, "pass"),
	)
	inc(&s, unsafe.Offsetof(p.seen))
	if c.rule != nil {
		if err := c.choose(&s); err != nil {
			return nil, err
		}
	} else {
		c.impair(&s)
	}
	s.At("open")
	inc(&s, unsafe.Offsetof(p.opened))
	s.At("pass")
	s.Add(asm.Mov.Imm(asm.R0, verdictNext), asm.Return())
	return s.Instructions(), nil
}

// impair appends instructions that lose packets or hand them to the queue, as the slot
// says, and jumps to pass or open. The time is in rAux.
func (c *classifier) impair(s *match.Sequence) {
	var (
		p page
		l slot
	)
	s.Add(
		asm.LoadMem(asm.R1, rSlot, int16(unsafe.Offsetof(l.mode)), asm.Word),
		asm.JEq.Imm(asm.R1, modeDivert, "divert"),
	)

	// A beat that is newer than our own look at the clock is a fresh one, hence the
	// signed comparison.
	var h hub
	s.Add(
		asm.LoadMapValue(asm.R1, c.hub.FD(), 0),
		asm.LoadMem(asm.R1, asm.R1, int16(unsafe.Offsetof(h.beat)), asm.DWord),
		asm.Sub.Reg(rAux, asm.R1),
		asm.JSGT.Imm(rAux, staleAfter, "open"),
	)
	lose(s)
	s.At("lost")
	spare(s)
	c.tellDrop(s, false)
	inc(s, unsafe.Offsetof(p.lost))
	s.Add(asm.Mov.Imm(asm.R1, nowhere), asm.Ja.Label("redirect"))

	s.At("divert")
	s.Add(
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.beat)), asm.DWord),
		asm.Mov.Reg(asm.R2, rAux),
		asm.Sub.Reg(asm.R2, asm.R1),
		asm.JSGT.Imm(asm.R2, staleAfter, "open"),
	)
	toTAP(s, rAux)
	s.At("redirect")
	s.Add(asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
}

// ownCookie passes packets that come out of a queue at this hook whose place
// stands at or behind this one. What comes out of another agent's queue is left
// alone, or two of them would hand it to each other for ever.
func (c *classifier) ownCookie(s *match.Sequence) {
	var h hub
	s.Add(
		asm.LoadMapValue(asm.R1, c.hub.FD(), 0),
		asm.LoadMem(asm.R1, asm.R1, int16(unsafe.Offsetof(h.queues)), asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "foreign"),
		asm.Mov.Reg(asm.R1, rSkb),
		asm.FnGetSocketCookie.Call(),
		asm.StoreMem(asm.RFP, stackCookie, asm.R0, asm.DWord),
		asm.LoadMapPtr(asm.R1, c.sockets.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackCookie),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "unknown"),
		asm.LoadMem(asm.R1, asm.R0, 4, asm.Word),
		asm.JNE.Imm(asm.R1, int32(c.group), "foreign"),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JLE.Imm(asm.R1, int32(c.rank), "pass"),
		asm.Ja.Label("foreign"),
	)
	s.At("unknown")
	s.Add(
		asm.LoadMem(asm.R1, rSkb, skbMark, asm.Word),
		asm.RSh.Imm(asm.R1, 16),
		asm.JEq.Imm(asm.R1, markOwn>>16, "pass"),
	)
	s.At("foreign")
}

// ownMark does the same on ingress, where packets have no socket of ours. It
// comes first, since a drained packet's mark is to be cleared without a fault too.
func (c *classifier) ownMark(s *match.Sequence) {
	s.Add(
		asm.LoadMem(asm.R1, rSkb, skbMark, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 16),
		asm.JNE.Imm(asm.R2, markOwn>>16, "foreign"),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, maxMarks),
		asm.JEq.Imm(asm.R2, 0, "foreign"), // it left an egress queue, and is back on ingress
		asm.Sub.Imm(asm.R1, int32(c.mark)),
		asm.JGT.Imm(asm.R1, maxMarks, "pass"), // another agent's, which clears it
		asm.LoadImm(asm.R2, int64(returnKey(c.group)), asm.DWord),
		asm.Or.Reg(asm.R1, asm.R2),
		asm.StoreMem(asm.RFP, stackCookie, asm.R1, asm.DWord),
		asm.LoadMapPtr(asm.R1, c.sockets.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, stackCookie),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "clear"), // its queue has gone since
		asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
		asm.JGT.Imm(asm.R1, int32(c.rank), "foreign"),
		asm.JNE.Imm(asm.R1, int32(c.rank), "pass"),
	)
	s.At("clear")
	s.Add(
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(rSkb, skbMark, asm.R1, asm.Word),
		asm.Ja.Label("pass"),
	)
	s.At("foreign")
	// What is for another host would become ours on its way through the TAP.
	s.Add(
		asm.LoadMem(asm.R1, rSkb, skbPacketType, asm.Word),
		asm.JEq.Imm(asm.R1, unix.PACKET_OTHERHOST, "pass"),
	)
}

// returner is the program on the ingress of a queue's TAP: what the queue writes
// there goes to the ingress of device, marked as ours.
func returner(device int, mark uint32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R2, int32(mark)),
		asm.StoreMem(asm.R1, skbMark, asm.R2, asm.Word),
		asm.Mov.Imm(asm.R1, int32(device)),
		asm.Mov.Imm(asm.R2, unix.BPF_F_INGRESS),
		asm.FnRedirect.Call(),
		asm.Return(),
	}
}
