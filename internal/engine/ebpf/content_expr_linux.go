package ebpf

import (
	"encoding/binary"
	"fmt"
	"go/token"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/content"
	"netemd/internal/match"
)

// condition appends instructions that jump to no unless c is true of the packet that
// readPacket has read, and go on behind otherwise. It uses R0 to R5.
func condition(s *match.Sequence, c content.Condition, no string) {
	e := expression{Sequence: s}
	yes := e.label()
	e.branch(c, yes, no, yes)
	s.At(yes)
}

// expression makes jumps of conditions: both ways' labels are known when a part is
// made, so no truth value is ever stored.
type expression struct {
	*match.Sequence
	labels int
}

func (e *expression) label() string {
	e.labels++
	return fmt.Sprintf("cond.%d", e.labels)
}

// branch jumps to yes or no; next, which is one of them, stands right behind.
func (e *expression) branch(c content.Condition, yes, no, next string) {
	switch c := c.(type) {
	case content.Not:
		e.branch(c.X, no, yes, next)
		return
	case content.And:
		more := e.label()
		e.branch(c.X, more, no, more)
		e.At(more)
		e.branch(c.Y, yes, no, next)
		return
	case content.Or:
		more := e.label()
		e.branch(c.X, yes, more, more)
		e.At(more)
		e.branch(c.Y, yes, no, next)
		return
	case content.Is:
		e.available(c.Field, no)
		e.number(c.Field, 0)
		e.Add(asm.JEq.Imm(asm.R0, 0, no))
	case content.Compare:
		e.available(c.X, no)
		e.available(c.Y, no)
		e.number(c.X, 0)
		if k, ok := c.Y.(content.Const); ok {
			e.Add(asm.LoadImm(asm.R1, int64(k), asm.DWord))
		} else {
			e.spill(0)
			e.number(c.Y, 1)
			e.Add(asm.Mov.Reg(asm.R1, asm.R0))
			e.restore(0)
		}
		e.Add(jumps[c.Op].Reg(asm.R0, asm.R1, no))
	case content.At:
		e.at(c, no)
	}
	if next != yes {
		e.Add(asm.Ja.Label(yes))
	}
}

// jumps are those that are taken when a comparison is false.
var jumps = map[token.Token]asm.JumpOp{
	token.EQL: asm.JNE, token.NEQ: asm.JEq,
	token.LSS: asm.JSGE, token.LEQ: asm.JSGT, token.GTR: asm.JSLE, token.GEQ: asm.JSLT,
}

// spill keeps R0 while another number is made.
func (e *expression) spill(depth int) {
	e.Add(asm.StoreMem(asm.RFP, stackScratch+8*int16(depth), asm.R0, asm.DWord))
}

func (e *expression) restore(depth int) {
	e.Add(asm.LoadMem(asm.R0, asm.RFP, stackScratch+8*int16(depth), asm.DWord))
}

// available jumps to no where the packet lacks a field of n.
func (e *expression) available(n content.Number, no string) {
	proto := func(number int32) {
		e.Add(loadWord(asm.R1, stackProto), asm.JNE.Imm(asm.R1, number, no))
	}
	switch n := n.(type) {
	case content.Arithmetic:
		e.available(n.X, no)
		e.available(n.Y, no)
	case content.Byte:
		e.Add(loadWord(asm.R1, stackPayload), asm.JLE.Imm(asm.R1, int32(n), no))
	case content.Field:
		switch {
		case n <= content.ICMP:
		case n == content.IPID:
			e.Add(loadByte(asm.R1, stackFamily), asm.JNE.Imm(asm.R1, 4, no))
		case n < content.TCPSYN:
			e.Add(loadByte(asm.R1, stackFamily), asm.JEq.Imm(asm.R1, 0, no))
		case n == content.PayloadLen:
			either := e.label()
			e.Add(loadWord(asm.R1, stackProto), asm.JEq.Imm(asm.R1, unix.IPPROTO_TCP, either))
			proto(unix.IPPROTO_UDP)
			e.At(either)
		default:
			number, _, _ := n.Place()
			proto(int32(number))
		}
	}
}

// number puts an available n into R0, with depth numbers spilled.
func (e *expression) number(n content.Number, depth int) {
	switch n := n.(type) {
	case content.Const:
		e.Add(asm.LoadImm(asm.R0, int64(n), asm.DWord))
	case content.Byte:
		e.Add(loadWord(asm.R2, stackPayloadAt), asm.Add.Imm(asm.R2, int32(n)))
		e.payload(1)
		e.Add(loadByte(asm.R0, stackText))
	case content.Arithmetic:
		e.number(n.X, depth)
		e.spill(depth)
		e.number(n.Y, depth+1)
		e.Add(asm.Mov.Reg(asm.R1, asm.R0))
		e.restore(depth)
		op := map[token.Token]asm.ALUOp{token.ADD: asm.Add, token.SUB: asm.Sub, token.AND: asm.And, token.OR: asm.Or}[n.Op]
		e.Add(op.Reg(asm.R0, asm.R1))
	case content.Field:
		e.field(n)
	}
}

// stackText is where parts of the payload are read to.
const stackText = stackConn - content.MaxText

// payload reads size bytes at the offset in R2. The length was looked at before, so what
// the helper says is not needed; it leaves zeros where it cannot read.
func (e *expression) payload(size int32) {
	read := e.label()
	e.Load(int32(stackText), size, read)
	e.At(read)
}

// at compares a text with the payload, 4 bytes at a time.
func (e *expression) at(c content.At, no string) {
	n := len(c.Text)
	e.Add(
		loadWord(asm.R1, stackPayload),
		asm.JLT.Imm(asm.R1, int32(c.Offset+n), no),
		loadWord(asm.R2, stackPayloadAt),
		asm.Add.Imm(asm.R2, int32(c.Offset)),
	)
	e.payload(int32(n))
	i := 0
	for ; i+4 <= n; i += 4 {
		e.Add(
			loadWord(asm.R1, stackText+int16(i)),
			asm.JNE.Imm32(asm.R1, int32(binary.NativeEndian.Uint32(c.Text[i:])), no),
		)
	}
	for ; i < n; i++ {
		e.Add(loadByte(asm.R1, stackText+int16(i)), asm.JNE.Imm(asm.R1, int32(c.Text[i]), no))
	}
}

// field reads what readPacket has left on the stack.
func (e *expression) field(f content.Field) {
	// is makes 1 of R1 when it is one of the numbers, and 0 otherwise.
	is := func(numbers ...int32) {
		done := e.label()
		e.Add(asm.Mov.Imm(asm.R0, 1))
		for _, k := range numbers {
			e.Add(asm.JEq.Imm(asm.R1, k, done))
		}
		e.Add(asm.Mov.Imm(asm.R0, 0))
		e.At(done)
	}
	protocol := func(numbers ...int32) {
		// What is not IP has protocol 0 here.
		e.Add(loadByte(asm.R1, stackKeyIP))
		is(numbers...)
	}
	// per loads a byte, or the two bytes of a shifted field, by family.
	per := func(v4, v6 []asm.Instruction) {
		six, done := e.label(), e.label()
		e.Add(loadByte(asm.R1, stackFamily), asm.JEq.Imm(asm.R1, 6, six))
		e.Add(v4...)
		e.Add(asm.Ja.Label(done))
		e.At(six)
		e.Add(v6...)
		e.At(done)
	}
	class := func(then ...asm.Instruction) {
		per([]asm.Instruction{loadByte(asm.R0, stackIP+1)}, []asm.Instruction{
			asm.LoadMem(asm.R0, asm.RFP, stackIP, asm.Half), asm.HostTo(asm.BE, asm.R0, asm.Half),
			asm.RSh.Imm(asm.R0, 4), asm.And.Imm(asm.R0, 0xff),
		})
		e.Add(then...)
	}
	switch f {
	case content.IP4:
		e.Add(loadByte(asm.R1, stackFamily))
		is(4)
	case content.IP6:
		e.Add(loadByte(asm.R1, stackFamily))
		is(6)
	case content.TCP:
		protocol(unix.IPPROTO_TCP)
	case content.UDP:
		protocol(unix.IPPROTO_UDP)
	case content.ICMP:
		protocol(unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6)
	case content.IPLen:
		e.Add(loadWord(asm.R0, stackLength))
	case content.IPTTL:
		per([]asm.Instruction{loadByte(asm.R0, stackIP+8)}, []asm.Instruction{loadByte(asm.R0, stackIP+7)})
	case content.IPDSCP:
		class(asm.RSh.Imm(asm.R0, 2))
	case content.IPECN:
		class(asm.And.Imm(asm.R0, 3))
	case content.IPID:
		e.Add(asm.LoadMem(asm.R0, asm.RFP, stackIP+4, asm.Half), asm.HostTo(asm.BE, asm.R0, asm.Half))
	case content.IPProto:
		e.Add(loadByte(asm.R0, stackKeyIP))
	case content.IPFrag:
		done := e.label()
		e.Add(loadWord(asm.R0, stackFragment), asm.JEq.Imm(asm.R0, 0, done), asm.Mov.Imm(asm.R0, 1))
		e.At(done)
	case content.TCPLen, content.UDPLen, content.PayloadLen:
		e.Add(loadWord(asm.R0, stackPayload))
	default:
		e.transport(f)
	}
}

// transport reads a field of a transport header; a flag is 0 or 1.
func (e *expression) transport(f content.Field) {
	_, at, size := f.Place()
	place := stackTransport + int16(at)
	switch size {
	case 1:
		e.Add(loadByte(asm.R0, place))
		if bit := f.Flag(); bit != 0 {
			done := e.label()
			e.Add(asm.And.Imm(asm.R0, int32(bit)), asm.JEq.Imm(asm.R0, 0, done), asm.Mov.Imm(asm.R0, 1))
			e.At(done)
		}
	case 2:
		e.Add(asm.LoadMem(asm.R0, asm.RFP, place, asm.Half), asm.HostTo(asm.BE, asm.R0, asm.Half))
	default:
		e.Add(loadWord(asm.R0, place), asm.HostTo(asm.BE, asm.R0, asm.Word))
	}
}
