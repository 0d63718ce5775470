package ebpf

import (
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
)

// nowhere is an interface index that no device has. The kernel frees a packet
// that is redirected there and tells its sender that it was sent.
const nowhere = 0x7ffffff0

// Offsets in struct __sk_buff (linux/bpf.h), the program's context.
const (
	skbPacketType = 4
	skbMark       = 8
	skbProtocol   = 16
)

// verdictNext lets the next program or filter decide: TCX_NEXT and TC_ACT_UNSPEC.
const verdictNext = -1

// markOwn in the upper half of a mark says that a packet comes out of a queue of
// ours; the next 8 bits tell the engines of different agents apart. On ingress the
// lowest 8 bits are the place's rank; the classifier of that place clears the mark,
// so the stack never sees it.
const (
	markOwn = 0x4e450000
	maxRank = 0xff
)

// The classifier's registers and stack.
const (
	rSkb  = asm.R6
	rPage = asm.R7
	rSlot = asm.R8
	rAux  = asm.R9

	stackHeader = -40 // IPv4 or IPv6 header
	stackPorts  = -48 // source and destination port
	stackExt    = -56 // 8 bytes of an IPv6 extension header
	stackCookie = -64
	stackOffset = -72 // where the transport header begins
	stackProto  = -80 // the transport protocol
	stackFirst  = -88 // 1 unless this is a later fragment
)

// classifier is what a place's program is made of.
type classifier struct {
	hub, page, sockets *ebpf.Map
	flow               flow
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
}

// sequence assembles instructions, with labels.
type sequence struct {
	ins   asm.Instructions
	label string
}

func (s *sequence) add(ins ...asm.Instruction) {
	for _, i := range ins {
		if s.label != "" {
			i, s.label = i.WithSymbol(s.label), ""
		}
		s.ins = append(s.ins, i)
	}
}

// at gives the next instruction a label.
func (s *sequence) at(label string) {
	if s.label != "" {
		s.add(asm.Ja.Label(label))
	}
	s.label = label
}

// load reads n bytes of the packet at offset, which is in R2 already, to the
// stack, and jumps to label where the packet is too short.
func (s *sequence) load(stack int32, n int32, label string) {
	s.add(
		asm.Mov.Reg(asm.R1, rSkb),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stack),
		asm.Mov.Imm(asm.R4, n),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, label),
	)
}

// inc adds one to the counter at offset in the page.
func (s *sequence) inc(offset uintptr) {
	s.add(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(rPage, asm.R1, asm.DWord, int16(offset)))
}

// program assembles the classifier.
func (c *classifier) program() (asm.Instructions, error) {
	var (
		s sequence
		p page
		l slot
	)
	s.add(asm.Mov.Reg(rSkb, asm.R1))
	if c.hook == target.Ingress {
		c.ownMark(&s)
	}
	s.add(
		asm.LoadMapValue(rPage, c.page.FD(), 0),
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.active)), asm.Word),
		asm.JEq.Imm(asm.R1, 0, "pass"),
		asm.Sub.Imm(asm.R1, 1),
		asm.And.Imm(asm.R1, slots-1),
		asm.Mul.Imm(asm.R1, int32(unsafe.Sizeof(l))),
		asm.Mov.Reg(rSlot, rPage),
		asm.Add.Imm(rSlot, int32(unsafe.Offsetof(p.slots))),
		asm.Add.Reg(rSlot, asm.R1),
	)
	if err := c.match(&s); err != nil {
		return nil, err
	}
	if c.hook == target.Egress {
		c.ownCookie(&s)
	}
	s.add(
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(rAux, asm.R0),
		asm.LoadMem(asm.R1, rSlot, int16(unsafe.Offsetof(l.deadline)), asm.DWord),
		asm.JGE.Reg(rAux, asm.R1, "pass"),
	)
	s.inc(unsafe.Offsetof(p.seen))
	s.add(
		asm.LoadMem(asm.R1, rSlot, int16(unsafe.Offsetof(l.mode)), asm.Word),
		asm.JEq.Imm(asm.R1, modeDivert, "divert"),
	)

	// A beat that is newer than our own look at the clock is a fresh one, hence the
	// signed comparison.
	var h hub
	s.add(
		asm.LoadMapValue(asm.R1, c.hub.FD(), 0),
		asm.LoadMem(asm.R1, asm.R1, int16(unsafe.Offsetof(h.beat)), asm.DWord),
		asm.Sub.Reg(rAux, asm.R1),
		asm.JSGT.Imm(rAux, staleAfter, "open"),
	)
	c.draw(&s)
	s.inc(unsafe.Offsetof(p.lost))
	s.add(asm.Mov.Imm(asm.R1, nowhere), asm.Ja.Label("redirect"))

	s.at("divert")
	s.add(
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.beat)), asm.DWord),
		asm.Sub.Reg(rAux, asm.R1),
		asm.JSGT.Imm(rAux, staleAfter, "open"),
	)
	s.inc(unsafe.Offsetof(p.diverted))
	s.add(asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.tap)), asm.Word))
	s.at("redirect")
	s.add(asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())

	s.at("open")
	s.inc(unsafe.Offsetof(p.opened))
	s.at("pass")
	s.add(asm.Mov.Imm(asm.R0, verdictNext), asm.Return())
	return s.ins, nil
}

// draw jumps to pass unless the packet is lost: netem's loss_event and
// get_crandom (net/sched/sch_netem.c), over splitmix64
// (https://prng.di.unimi.it/splitmix64.c) of seed and a counter.
func (c *classifier) draw(s *sequence) {
	var l slot
	mix := func(shift int32, factor uint64) {
		s.add(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, shift), asm.Xor.Reg(asm.R1, asm.R2))
		if factor != 0 {
			s.add(asm.LoadImm(asm.R2, int64(factor), asm.DWord), asm.Mul.Reg(asm.R1, asm.R2))
		}
	}
	gamma := goldenGamma
	s.add(
		asm.LoadMem(rAux, rSlot, int16(unsafe.Offsetof(l.loss)), asm.Word),
		asm.JEq.Imm(rAux, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1),
		fetchAdd(rSlot, asm.R1, int16(unsafe.Offsetof(l.drawn))),
		asm.Add.Imm(asm.R1, 1),
		asm.LoadImm(asm.R2, int64(gamma), asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R2, rSlot, int16(unsafe.Offsetof(l.seed)), asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
	)
	mix(30, mixA)
	mix(27, mixB)
	mix(31, 0)
	s.add(
		asm.RSh.Imm(asm.R1, 32),
		asm.LoadMem(asm.R3, rSlot, int16(unsafe.Offsetof(l.rho)), asm.Word),
		asm.JEq.Imm(asm.R3, 0, "decide"),
		// (value * (2^32 - rho) + last * rho) >> 32, with rho one more than given.
		asm.Add.Imm(asm.R3, 1),
		asm.LoadImm(asm.R2, 1<<32, asm.DWord),
		asm.Sub.Reg(asm.R2, asm.R3),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R2, rSlot, int16(unsafe.Offsetof(l.last)), asm.DWord),
		asm.Mul.Reg(asm.R2, asm.R3),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.RSh.Imm(asm.R1, 32),
		asm.StoreMem(rSlot, int16(unsafe.Offsetof(l.last)), asm.R1, asm.DWord),
	)
	s.at("decide")
	s.add(asm.JGT.Reg(asm.R1, rAux, "pass"))
}

// fetchAdd adds src to the 64 bits at dst+offset and puts what was there before
// into src. The assembler (cilium/ebpf 0.22.0) drops the fetch flag, BPF_FETCH, from
// what it writes unless the constant has it too.
func fetchAdd(dst, src asm.Register, offset int16) asm.Instruction {
	ins := asm.FetchAdd.Mem(dst, src, asm.DWord, offset)
	ins.Constant = unix.BPF_FETCH
	return ins
}

// The constants of splitmix64.
const (
	goldenGamma uint64 = 0x9e3779b97f4a7c15
	mixA        uint64 = 0xbf58476d1ce4e5b9
	mixB        uint64 = 0x94d049bb133111eb
)

// ownCookie passes packets that come out of a queue at this hook whose place
// stands at or behind this one. What comes out of another agent's queue is left
// alone, or two of them would hand it to each other for ever.
func (c *classifier) ownCookie(s *sequence) {
	var h hub
	s.add(
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
	s.at("unknown")
	s.add(
		asm.LoadMem(asm.R1, rSkb, skbMark, asm.Word),
		asm.RSh.Imm(asm.R1, 16),
		asm.JEq.Imm(asm.R1, markOwn>>16, "pass"),
	)
	s.at("foreign")
}

// ownMark does the same on ingress, where packets have no socket of ours. It
// comes first, since a drained packet's mark is to be cleared without a fault too.
func (c *classifier) ownMark(s *sequence) {
	s.add(
		asm.LoadMem(asm.R1, rSkb, skbMark, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 16),
		asm.JNE.Imm(asm.R2, markOwn>>16, "foreign"),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, maxRank),
		asm.JEq.Imm(asm.R2, 0, "foreign"), // it left an egress queue, and is back on ingress
		asm.Sub.Imm(asm.R1, int32(c.mark)),
		asm.JGT.Imm(asm.R1, maxRank, "pass"), // another agent's, which clears it
		asm.JGT.Imm(asm.R1, int32(c.rank), "foreign"),
		asm.JNE.Imm(asm.R1, int32(c.rank), "pass"),
		asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(rSkb, skbMark, asm.R1, asm.Word),
		asm.Ja.Label("pass"),
	)
	s.at("foreign")
	// What is for another host would become ours on its way through the TAP.
	s.add(
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
