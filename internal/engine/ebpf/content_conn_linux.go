package ebpf

import (
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/match"
)

// conn is what a rule knows of one connection and direction. A program that has its
// packet holds the connection's lock, but for what is counted atomically.
type conn struct {
	// next is the sequence number behind the highest one seen, first that of the SYN.
	next, first uint32
	// segments with data were seen.
	segments uint32
	// start and end are the sequence numbers of the segment that was chosen.
	start, end uint32
	flags      uint32
	// hole and holeEnd are the last sequence numbers that were skipped, so that what
	// fills them is no retransmission; equal when there are none.
	hole, holeEnd uint32
	// turns counts chosen packets, ordinal all of them.
	turns, ordinal uint64
}

// Flags of a conn.
const (
	connSYN   = 1 // first is known
	connFound = 2 // start and end are
)

// The flags of TCP (RFC 9293).
const (
	flagFIN = 0x01
	flagSYN = 0x02
	flagRST = 0x04
	flagACK = 0x10
)

var connLayout conn

// loadConn and storeConn reach a field of the conn in rConn.
func loadConn(to asm.Register, field uintptr) asm.Instruction {
	return asm.LoadMem(to, rConn, int16(field), asm.Word)
}

func storeConn(field uintptr, from asm.Register) asm.Instruction {
	return asm.StoreMem(rConn, int16(field), from, asm.Word)
}

// rConn is where a program has its connection, once it needs the slot no more.
const rConn = rSlot

// find puts the packet's connection into R0, 0 for an unknown one.
func (c *classifier) find(s *match.Sequence) {
	s.Add(
		asm.LoadMapPtr(asm.R1, c.conns.byKey.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(stackKey)),
		asm.FnMapLookupElem.Call(),
	)
}

// connection puts the packet's connection into rConn, a new one if it must be, and
// jumps to pass in the case that there is no room. A SYN begins it anew. Its labels
// begin with label. It is locked from then on: see unlock.
func (c *classifier) connection(s *match.Sequence, label string) {
	var p page
	value := func(field uintptr) int16 { return stackConn + int16(field) }
	c.find(s)
	s.Add(
		asm.Mov.Reg(rConn, asm.R0),
		asm.JNE.Imm(rConn, 0, label+".known"),
		asm.Mov.Imm(asm.R1, 0),
	)
	for at := stackConn; at < stackConn+int16(unsafe.Sizeof(connLayout)); at += 8 {
		s.Add(asm.StoreMem(asm.RFP, at, asm.R1, asm.DWord))
	}
	s.Add(
		loadWord(asm.R1, stackSeq),
		storeWord(value(unsafe.Offsetof(connLayout.next)), asm.R1),
		storeWord(value(unsafe.Offsetof(connLayout.first)), asm.R1),
		loadByte(asm.R1, stackFlags),
		asm.RSh.Imm(asm.R1, 1), // SYN is the second bit, connSYN the first
		asm.And.Imm(asm.R1, connSYN),
		storeWord(value(unsafe.Offsetof(connLayout.flags)), asm.R1),
		asm.LoadMapPtr(asm.R1, c.conns.byKey.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(stackKey)),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, int32(stackConn)),
		asm.Mov.Imm(asm.R4, unix.BPF_NOEXIST),
		asm.FnMapUpdateElem.Call(),
		asm.JNE.Imm(asm.R0, 0, label+".made"), // by another processor
	)
	inc(s, unsafe.Offsetof(p.begun))
	s.At(label + ".made")
	c.find(s)
	s.Add(
		asm.Mov.Reg(rConn, asm.R0),
		asm.JEq.Imm(rConn, 0, "pass"),
	)
	s.At(label + ".known")
	c.lock(s)
	renew(s, label+".ready")
	s.At(label + ".ready")
}

// rLock is the lock that is held, once nothing more of the packet is read.
const rLock = rAux

// lock takes the lock of the packet's connection, which others may have, too. Until
// unlock no function of the kernel may be called, and every way must lead there.
func (c *classifier) lock(s *match.Sequence) {
	s.Add(
		loadWord(asm.R1, stackPorts),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 16),
		asm.Xor.Reg(asm.R1, asm.R2),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 8),
		asm.Xor.Reg(asm.R1, asm.R2),
		asm.And.Imm(asm.R1, connLocks-1),
		storeWord(stackScratch, asm.R1),
		asm.LoadMapPtr(asm.R1, c.conns.locks.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(stackScratch)),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Reg(rLock, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.FnSpinLock.Call(),
	)
}

func unlock(s *match.Sequence) {
	s.Add(asm.Mov.Reg(asm.R1, rLock), asm.FnSpinUnlock.Call())
}

// unlocked takes over from what judged a connection, at the labels hit and miss, and goes
// on behind it or jumps to pass.
func unlocked(s *match.Sequence) {
	s.At("miss")
	unlock(s)
	s.Add(asm.Ja.Label("pass"))
	s.At("hit")
	unlock(s)
}

// renew begins the connection in rConn anew if the packet is a SYN that it has not seen.
func renew(s *match.Sequence, label string) {
	s.Add(
		loadByte(asm.R1, stackFlags),
		asm.And.Imm(asm.R1, flagSYN),
		asm.JEq.Imm(asm.R1, 0, label),
		loadWord(asm.R2, stackSeq),
		loadConn(asm.R1, unsafe.Offsetof(connLayout.flags)),
		asm.And.Imm(asm.R1, connSYN),
		asm.JEq.Imm(asm.R1, 0, label+".new"),
		loadConn(asm.R1, unsafe.Offsetof(connLayout.first)),
		asm.JEq.Reg(asm.R1, asm.R2, label),
	)
	s.At(label + ".new")
	s.Add(asm.Mov.Imm(asm.R1, 0))
	for at := int16(0); at < int16(unsafe.Sizeof(connLayout)); at += 8 {
		s.Add(asm.StoreMem(rConn, at, asm.R1, asm.DWord))
	}
	s.Add(
		storeConn(unsafe.Offsetof(connLayout.first), asm.R2),
		storeConn(unsafe.Offsetof(connLayout.next), asm.R2),
		asm.Mov.Imm(asm.R1, connSYN),
		storeConn(unsafe.Offsetof(connLayout.flags), asm.R1),
	)
}

// span jumps to pass unless the packet is of TCP and takes sequence numbers, and says
// how many: those of its data, its SYN and its FIN.
func span(s *match.Sequence) {
	s.Add(
		loadWord(asm.R1, stackProto),
		asm.JNE.Imm(asm.R1, unix.IPPROTO_TCP, "pass"),
		loadByte(asm.R1, stackFlags),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.RSh.Imm(asm.R2, 1),
		asm.And.Imm(asm.R2, 1),
		asm.And.Imm(asm.R1, flagFIN),
		loadWord(asm.R3, stackPayload),
		asm.Add.Reg(asm.R1, asm.R2),
		asm.Add.Reg(asm.R1, asm.R3),
		storeWord(stackSpan, asm.R1),
		asm.JEq.Imm(asm.R1, 0, "pass"),
	)
}

// minus puts the distance of two sequence numbers, a - b, into a: below 0 when a comes
// before b, across the wrap too.
func minus(a, b asm.Register) []asm.Instruction {
	return []asm.Instruction{asm.Sub.Reg(a, b), asm.LSh.Imm(a, 32), asm.ArSh.Imm(a, 32)}
}

// track follows the connection's sequence numbers, and jumps to seen when the packet
// begins with one that was seen before, to fresh otherwise. With seen, R0 is 1 when the
// packet ends with new ones and 0 otherwise.
func track(s *match.Sequence, seen, fresh string) {
	next, hole, holeEnd := unsafe.Offsetof(connLayout.next), unsafe.Offsetof(connLayout.hole), unsafe.Offsetof(connLayout.holeEnd)
	s.Add(
		loadWord(asm.R2, stackSeq),
		loadWord(asm.R5, stackSpan),
		asm.Add.Reg(asm.R5, asm.R2), // behind its end; the upper half is of no account
		loadConn(asm.R3, next),

		// R0: does it bring new numbers?
		asm.Mov.Reg(asm.R1, asm.R5),
	)
	s.Add(minus(asm.R1, asm.R3)...)
	s.Add(
		asm.Mov.Imm(asm.R0, 0),
		asm.JSLE.Imm(asm.R1, 0, "track.old"),
		asm.Mov.Imm(asm.R0, 1),
		storeConn(next, asm.R5),
	)
	s.At("track.old")
	s.Add(asm.Mov.Reg(asm.R1, asm.R2))
	s.Add(minus(asm.R1, asm.R3)...)
	s.Add(
		asm.JEq.Imm(asm.R1, 0, fresh),
		asm.JSLT.Imm(asm.R1, 0, "track.before"),
		storeConn(hole, asm.R3),
		storeConn(holeEnd, asm.R2),
		asm.Ja.Label(fresh),
	)
	s.At("track.before")
	s.Add(
		loadConn(asm.R3, hole),
		loadConn(asm.R4, holeEnd),
		asm.JEq.Reg(asm.R3, asm.R4, seen),
		asm.Mov.Reg(asm.R1, asm.R2),
	)
	s.Add(minus(asm.R1, asm.R3)...)
	s.Add(asm.JSLT.Imm(asm.R1, 0, seen), asm.Mov.Reg(asm.R1, asm.R2))
	s.Add(minus(asm.R1, asm.R4)...)
	s.Add(asm.JSGE.Imm(asm.R1, 0, seen), asm.Mov.Reg(asm.R1, asm.R5))
	s.Add(minus(asm.R1, asm.R4)...)
	s.Add(
		asm.JSLT.Imm(asm.R1, 0, "track.filled"),
		asm.Mov.Reg(asm.R5, asm.R4),
	)
	s.At("track.filled")
	s.Add(storeConn(hole, asm.R5), asm.Ja.Label(fresh))
}

// nth jumps to hit with the segment number n of its connection and what repeats any of
// it, and to miss otherwise. The record says n in both cases, whichever segments came with
// it in one packet.
func nth(s *match.Sequence, n uint32) {
	found, start, end := unsafe.Offsetof(connLayout.flags), unsafe.Offsetof(connLayout.start), unsafe.Offsetof(connLayout.end)
	segments := unsafe.Offsetof(connLayout.segments)
	first := func(to asm.Register) { // the data's first number, behind a SYN's
		s.Add(
			loadByte(asm.R1, stackFlags),
			asm.RSh.Imm(asm.R1, 1),
			asm.And.Imm(asm.R1, 1),
			loadWord(to, stackSeq),
			asm.Add.Reg(to, asm.R1),
		)
	}
	track(s, "nth.seen", "nth.fresh")

	s.At("nth.seen")
	s.Add(
		loadWord(asm.R1, stackPayload), asm.JEq.Imm(asm.R1, 0, "miss"),
		asm.JEq.Imm(asm.R0, 0, "nth.again"),
		asm.Mov.Imm(asm.R2, 1), // what is new of it makes one segment
		asm.Ja.Label("nth.count"),
	)
	s.At("nth.fresh")
	s.Add(
		loadWord(asm.R1, stackPayload), asm.JEq.Imm(asm.R1, 0, "miss"),
		loadWord(asm.R2, stackSegs),
	)
	s.At("nth.count")
	s.Add(
		loadConn(asm.R3, segments),
		asm.Add.Reg(asm.R2, asm.R3), // the last of the packet
		asm.Add.Imm(asm.R3, 1),      // and the first
		storeConn(segments, asm.R2),
		asm.LoadImm(asm.R4, int64(n), asm.DWord),
		storeWord(stackSegment, asm.R4),
		asm.JGT.Reg(asm.R3, asm.R4, "nth.again"),
		asm.JLT.Reg(asm.R2, asm.R4, "nth.again"),
		// Where the n-th begins and ends in the packet.
		asm.Sub.Reg(asm.R2, asm.R4), // how many come behind it
		asm.Sub.Reg(asm.R4, asm.R3), // and before it
		asm.LoadMem(asm.R5, rSkb, skbGSOSize, asm.Word),
		asm.Mul.Reg(asm.R4, asm.R5),
	)
	first(asm.R3)
	s.Add(
		asm.Add.Reg(asm.R4, asm.R3),
		storeConn(start, asm.R4),
		asm.JNE.Imm(asm.R2, 0, "nth.inner"),
		loadWord(asm.R1, stackPayload),
		asm.Add.Reg(asm.R3, asm.R1),
		asm.Mov.Reg(asm.R4, asm.R3),
		asm.Ja.Label("nth.end"),
	)
	s.At("nth.inner")
	s.Add(asm.Add.Reg(asm.R4, asm.R5))
	s.At("nth.end")
	s.Add(
		storeConn(end, asm.R4),
		loadConn(asm.R1, found),
		asm.Or.Imm(asm.R1, connFound),
		storeConn(found, asm.R1),
		asm.Ja.Label("hit"),
	)

	s.At("nth.again")
	s.Add(
		loadConn(asm.R1, found),
		asm.And.Imm(asm.R1, connFound),
		asm.JEq.Imm(asm.R1, 0, "miss"),
	)
	first(asm.R3)
	s.Add(
		loadWord(asm.R5, stackPayload),
		asm.Add.Reg(asm.R5, asm.R3),
		loadConn(asm.R4, end),
	)
	s.Add(minus(asm.R3, asm.R4)...)
	s.Add(asm.JSGE.Imm(asm.R3, 0, "miss"), loadConn(asm.R4, start))
	s.Add(minus(asm.R5, asm.R4)...)
	s.Add(
		asm.JSLE.Imm(asm.R5, 0, "miss"),
		asm.LoadImm(asm.R1, int64(n), asm.DWord),
		storeWord(stackSegment, asm.R1),
		asm.Ja.Label("hit"),
	)
}
