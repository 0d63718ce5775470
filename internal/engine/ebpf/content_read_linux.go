package ebpf

import (
	"encoding/binary"
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/match"
)

// Further offsets in struct __sk_buff (linux/bpf.h).
const (
	skbLen      = 0
	skbProtocol = 16
	skbGSOSegs  = 164
	skbGSOSize  = 176
)

// connKey is a connection, in one direction.
type connKey struct {
	// Source and Destination have their first 4 bytes only for IPv4.
	Source, Destination [16]byte
	// Ports are source and destination, in network order.
	Ports    [4]byte
	Protocol uint8
	// Family is 4, 6, or 0 for what is not IP.
	Family uint8
	_      [2]byte
}

// chosen is what a program tells about a packet that it chose.
type chosen struct {
	Time uint64 // CLOCK_MONOTONIC in ns
	Key  connKey
	// Rule is the number of the place.
	Rule     uint32
	Sequence uint32
	Payload  uint32
	Segment  uint32
	Length   uint32
	Segments uint32
	Flags    uint8
	_        [7]byte
}

// Where a content program keeps what it read, below what Select and ownCookie use.
const (
	stackIP        = -40 // the first 20 or 40 bytes
	stackTransport = -64 // the first 20 of TCP, 8 of UDP, 4 of others
	stackChosen    = stackCookie - int16(unsafe.Sizeof(chosen{}))

	// Words that the verifier knows nothing of, as in match: they are not 8-aligned.
	stackProto     = stackChosen - 4  // the protocol whose header was read, 1 for ICMPv6; or 0
	stackEnd       = stackChosen - 12 // where IP's packet ends in the data
	stackPayload   = stackChosen - 20 // its bytes behind the transport header
	stackPayloadAt = stackChosen - 28
	stackFragment  = stackChosen - 36
	stackSpan      = stackChosen - 44 // the sequence numbers that a segment takes

	stackScratch = stackChosen - 48 - 64 // sums under way, or a text of the payload
	stackConn    = stackScratch - int16(unsafe.Sizeof(conn{}))
	stackLowest  = stackConn
)

// rOffset is where the next header begins.
const rOffset = rAux

// network gives a 16-bit number the order in which it lies in a packet.
func network(v uint16) int32 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], v)
	return int32(binary.NativeEndian.Uint16(b[:]))
}

func loadWord(to asm.Register, stack int16) asm.Instruction {
	return asm.LoadMem(to, asm.RFP, stack, asm.Word)
}

func storeWord(stack int16, from asm.Register) asm.Instruction {
	return asm.StoreMem(asm.RFP, stack, from, asm.Word)
}

func loadByte(to asm.Register, stack int16) asm.Instruction {
	return asm.LoadMem(to, asm.RFP, stack, asm.Byte)
}

// The stack's places of a chosen's fields.
var (
	layout       chosen
	stackKey     = stackChosen + int16(unsafe.Offsetof(layout.Key))
	stackSource  = stackKey + int16(unsafe.Offsetof(layout.Key.Source))
	stackDest    = stackKey + int16(unsafe.Offsetof(layout.Key.Destination))
	stackPorts   = stackKey + int16(unsafe.Offsetof(layout.Key.Ports))
	stackKeyIP   = stackKey + int16(unsafe.Offsetof(layout.Key.Protocol))
	stackFamily  = stackKey + int16(unsafe.Offsetof(layout.Key.Family))
	stackRule    = stackChosen + int16(unsafe.Offsetof(layout.Rule))
	stackSeq     = stackChosen + int16(unsafe.Offsetof(layout.Sequence))
	stackBytes   = stackChosen + int16(unsafe.Offsetof(layout.Payload))
	stackSegment = stackChosen + int16(unsafe.Offsetof(layout.Segment))
	stackLength  = stackChosen + int16(unsafe.Offsetof(layout.Length))
	stackSegs    = stackChosen + int16(unsafe.Offsetof(layout.Segments))
	stackFlags   = stackChosen + int16(unsafe.Offsetof(layout.Flags))
)

// readPacket appends instructions that read a packet as package content does. It uses
// R0 to R5 and R9, and jumps nowhere else.
func readPacket(s *match.Sequence, header int) {
	s.Add(asm.Mov.Imm(asm.R1, 0))
	for at := stackScratch; at < 0; at += 8 {
		if at < stackCookie || at >= stackTransport {
			s.Add(asm.StoreMem(asm.RFP, at, asm.R1, asm.DWord))
		}
	}
	s.Add(
		asm.Mov.Imm(rOffset, int32(header)),
		asm.LoadMem(asm.R1, rSkb, skbLen, asm.Word),
		asm.Sub.Imm(asm.R1, int32(header)),
		storeWord(stackLength, asm.R1),
		asm.LoadMem(asm.R1, rSkb, skbProtocol, asm.Word),
	)
	if header >= 14 {
		for _, tag := range []string{"read.tag0", "read.tag1"} {
			s.Add(
				asm.JEq.Imm(asm.R1, network(unix.ETH_P_8021Q), tag),
				asm.JNE.Imm(asm.R1, network(unix.ETH_P_8021AD), "read.untagged"),
			)
			s.At(tag)
			s.Add(asm.Mov.Reg(asm.R2, rOffset))
			s.Load(stackTransport, 4, "read.done")
			s.Add(
				asm.LoadMem(asm.R1, asm.RFP, stackTransport+2, asm.Half),
				asm.Add.Imm(rOffset, 4),
			)
		}
		s.At("read.untagged")
	}
	s.Add(
		asm.JEq.Imm(asm.R1, network(unix.ETH_P_IPV6), "read.v6"),
		asm.JNE.Imm(asm.R1, network(unix.ETH_P_IP), "read.done"),
	)
	readIPv4(s)
	readIPv6(s)
	readTransport(s)
	s.At("read.done")
	countSegments(s)
}

// bounds takes IP's length, in R1, and says where its packet ends; a length of 0 is
// that of BIG TCP, which the field cannot say.
func bounds(s *match.Sequence, known string) {
	s.Add(
		asm.JNE.Imm(asm.R1, 0, known),
		asm.LoadMem(asm.R1, rSkb, skbLen, asm.Word),
		asm.Sub.Reg(asm.R1, rOffset),
	)
	s.At(known)
	s.Add(
		storeWord(stackLength, asm.R1),
		asm.Add.Reg(asm.R1, rOffset),
		asm.LoadMem(asm.R2, rSkb, skbLen, asm.Word),
		asm.JLE.Reg(asm.R1, asm.R2, known+".whole"),
		asm.Mov.Reg(asm.R1, asm.R2),
	)
	s.At(known + ".whole")
	s.Add(storeWord(stackEnd, asm.R1))
}

func readIPv4(s *match.Sequence) {
	s.Add(asm.Mov.Reg(asm.R2, rOffset))
	s.Load(stackIP, 20, "read.done")
	s.Add(
		asm.Mov.Imm(asm.R1, 4), asm.StoreMem(asm.RFP, stackFamily, asm.R1, asm.Byte),
		loadByte(asm.R1, stackIP+9), asm.StoreMem(asm.RFP, stackKeyIP, asm.R1, asm.Byte),
		loadWord(asm.R1, stackIP+12), storeWord(stackSource, asm.R1),
		loadWord(asm.R1, stackIP+16), storeWord(stackDest, asm.R1),
		asm.LoadMem(asm.R1, asm.RFP, stackIP+2, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
	)
	bounds(s, "read.length4")
	s.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackIP+6, asm.Half), // flags and fragment offset
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.And.Imm(asm.R2, network(0x3fff)),
		storeWord(stackFragment, asm.R2),
		asm.And.Imm(asm.R1, network(0x1fff)),
		asm.JNE.Imm(asm.R1, 0, "read.done"),
		loadByte(asm.R1, stackIP), // version and header length
		asm.And.Imm(asm.R1, 0x0f),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(rOffset, asm.R1),
		asm.Ja.Label("read.transport"),
	)
}

func readIPv6(s *match.Sequence) {
	s.At("read.v6")
	s.Add(asm.Mov.Reg(asm.R2, rOffset))
	s.Load(stackIP, 40, "read.done")
	s.Add(
		asm.Mov.Imm(asm.R1, 6), asm.StoreMem(asm.RFP, stackFamily, asm.R1, asm.Byte),
		loadByte(asm.R1, stackIP+6), asm.StoreMem(asm.RFP, stackKeyIP, asm.R1, asm.Byte),
	)
	for i := range int16(4) {
		s.Add(asm.LoadMem(asm.R1, asm.RFP, stackIP+8+8*i, asm.DWord), asm.StoreMem(asm.RFP, stackSource+8*i, asm.R1, asm.DWord))
	}
	s.Add(
		asm.LoadMem(asm.R1, asm.RFP, stackIP+4, asm.Half),
		asm.HostTo(asm.BE, asm.R1, asm.Half),
		asm.JEq.Imm(asm.R1, 0, "read.length6.jumbo"),
		asm.Add.Imm(asm.R1, 40),
	)
	s.At("read.length6.jumbo")
	bounds(s, "read.length6")
	s.Add(asm.Add.Imm(rOffset, 40))
	for _, i := range []string{"0", "1", "2", "3"} {
		s.Add(
			loadByte(asm.R1, stackKeyIP),
			asm.JEq.Imm(asm.R1, unix.IPPROTO_HOPOPTS, "read.walk"+i),
			asm.JEq.Imm(asm.R1, unix.IPPROTO_ROUTING, "read.walk"+i),
			asm.JEq.Imm(asm.R1, unix.IPPROTO_DSTOPTS, "read.walk"+i),
			asm.JNE.Imm(asm.R1, unix.IPPROTO_FRAGMENT, "read.transport"),
			asm.Mov.Reg(asm.R2, rOffset),
		)
		readExtension(s)
		s.Add(
			asm.Add.Imm(rOffset, 8),
			asm.LoadMem(asm.R1, asm.RFP, stackTransport+2, asm.Half),
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.And.Imm(asm.R2, network(0xfff9)),
			loadWord(asm.R3, stackFragment),
			asm.Or.Reg(asm.R2, asm.R3),
			storeWord(stackFragment, asm.R2),
			asm.And.Imm(asm.R1, network(0xfff8)),
			asm.JNE.Imm(asm.R1, 0, "read.done"), // what follows is no header
			asm.Ja.Label("read.next"+i),
		)
		s.At("read.walk" + i)
		s.Add(asm.Mov.Reg(asm.R2, rOffset))
		readExtension(s)
		s.Add(
			loadByte(asm.R1, stackTransport+1), // in 8 bytes, less one
			asm.Add.Imm(asm.R1, 1),
			asm.LSh.Imm(asm.R1, 3),
			asm.Add.Reg(rOffset, asm.R1),
		)
		s.At("read.next" + i)
	}
}

func readExtension(s *match.Sequence) {
	s.Load(stackTransport, 8, "read.done")
	s.Add(loadByte(asm.R1, stackTransport), asm.StoreMem(asm.RFP, stackKeyIP, asm.R1, asm.Byte))
}

func readTransport(s *match.Sequence) {
	s.At("read.transport")
	s.Add(
		loadByte(asm.R1, stackKeyIP),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_TCP, "read.tcp"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_UDP, "read.udp"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_ICMP, "read.icmp"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_ICMPV6, "read.icmp"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_SCTP, "read.ports"),
		asm.JEq.Imm(asm.R1, unix.IPPROTO_DCCP, "read.ports"),
		asm.JNE.Imm(asm.R1, unix.IPPROTO_UDPLITE, "read.done"),
	)
	load := func(label string, n int32) {
		s.At(label)
		s.Add(asm.Mov.Reg(asm.R2, rOffset))
		s.Load(stackTransport, n, "read.done")
	}
	ports := []asm.Instruction{loadWord(asm.R1, stackTransport), storeWord(stackPorts, asm.R1)}
	load("read.ports", 4)
	s.Add(ports...)
	s.Add(asm.Ja.Label("read.done"))

	load("read.icmp", 4)
	s.Add(asm.Mov.Imm(asm.R1, unix.IPPROTO_ICMP), storeWord(stackProto, asm.R1), asm.Ja.Label("read.done"))

	load("read.tcp", 20)
	s.Add(
		loadByte(asm.R1, stackTransport+12), // header length, in 4 bytes, above
		asm.RSh.Imm(asm.R1, 4),
		asm.JLT.Imm(asm.R1, 5, "read.done"),
		asm.LSh.Imm(asm.R1, 2),
		asm.Add.Reg(rOffset, asm.R1),
		loadByte(asm.R1, stackTransport+13),
		asm.StoreMem(asm.RFP, stackFlags, asm.R1, asm.Byte),
		loadWord(asm.R1, stackTransport+4),
		asm.HostTo(asm.BE, asm.R1, asm.Word),
		storeWord(stackSeq, asm.R1),
		asm.Ja.Label("read.payload"),
	)
	load("read.udp", 8)
	s.Add(asm.Add.Imm(rOffset, 8))

	s.At("read.payload")
	s.Add(ports...)
	s.Add(
		loadByte(asm.R1, stackKeyIP),
		storeWord(stackProto, asm.R1),
		storeWord(stackPayloadAt, rOffset),
		loadWord(asm.R1, stackEnd),
		asm.JLE.Reg(asm.R1, rOffset, "read.done"), // nothing behind the header
		asm.Sub.Reg(asm.R1, rOffset),
		storeWord(stackPayload, asm.R1),
		storeWord(stackBytes, asm.R1),
	)
}

// countSegments says how many packets of the wire this one stands for: what the kernel
// says, else as many as the payload makes, else 1.
func countSegments(s *match.Sequence) {
	s.Add(
		asm.LoadMem(asm.R1, rSkb, skbGSOSegs, asm.Word),
		asm.JNE.Imm(asm.R1, 0, "read.segments"),
		asm.Mov.Imm(asm.R1, 1),
		asm.LoadMem(asm.R2, rSkb, skbGSOSize, asm.Word),
		asm.JEq.Imm(asm.R2, 0, "read.segments"),
		loadWord(asm.R3, stackPayload),
		asm.JEq.Imm(asm.R3, 0, "read.segments"),
		asm.Add.Reg(asm.R3, asm.R2),
		asm.Sub.Imm(asm.R3, 1),
		asm.Div.Reg(asm.R3, asm.R2),
		asm.Mov.Reg(asm.R1, asm.R3),
	)
	s.At("read.segments")
	s.Add(storeWord(stackSegs, asm.R1))
}
