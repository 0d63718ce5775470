package ebpf

import (
	"unsafe"

	"github.com/cilium/ebpf/asm"

	"netemd/internal/content"
	"netemd/internal/match"
)

// tracks reports whether a rule needs to know connections.
func tracks(r content.Rule) bool {
	return r.PerConnection || r.Kind == content.Data || r.Kind == content.Retransmit
}

// choose appends instructions that do what the rule says, and jumps to pass or open.
// What is counted is counted whether the engine lives or not: only acting needs it.
func (c *classifier) choose(s *match.Sequence) error {
	c.rest(s)
	readPacket(s, c.header)
	if err := c.want(s); err != nil {
		return err
	}
	s.At("wanted")
	var p page
	s.Add(
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.RFP, stackChosen, asm.R0, asm.DWord),
	)
	if c.rule.Hold > 0 {
		s.Add(asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.beat)), asm.DWord))
	} else {
		var h hub
		s.Add(
			asm.LoadMapValue(asm.R1, c.hub.FD(), 0),
			asm.LoadMem(asm.R1, asm.R1, int16(unsafe.Offsetof(h.beat)), asm.DWord),
		)
	}
	s.Add(
		asm.Sub.Reg(asm.R0, asm.R1),
		asm.JSGT.Imm(asm.R0, staleAfter, "open"),
	)
	c.takeTurn(s)
	s.Add(
		asm.Mov.Imm(asm.R1, int32(c.id)),
		storeWord(stackRule, asm.R1),
		asm.LoadMapPtr(asm.R1, c.ring.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, int32(stackChosen)),
		asm.Mov.Imm(asm.R3, int32(unsafe.Sizeof(chosen{}))),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "recorded"),
	)
	inc(s, unsafe.Offsetof(p.missed))
	s.At("recorded")
	if c.rule.Hold > 0 {
		s.Add(asm.LoadMem(asm.R2, asm.RFP, stackChosen, asm.DWord))
		toTAP(s, asm.R2)
	} else {
		c.tellDrop(s, true)
		inc(s, unsafe.Offsetof(p.lost))
		s.Add(asm.Mov.Imm(asm.R1, nowhere))
	}
	s.Add(asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return())
	return nil
}

// want jumps to pass unless the rule's kind wants the packet.
func (c *classifier) want(s *match.Sequence) error {
	switch c.rule.Kind {
	case content.Data:
		span(s)
		c.connection(s, "conn")
		nth(s, c.rule.N)
		unlocked(s)
		return nil
	case content.Retransmit:
		span(s)
		c.connection(s, "conn")
		track(s, "hit", "miss")
		unlocked(s)
		return nil
	}
	if c.rule.PerConnection {
		// A connection that begins anew has its count anew, whatever kind is chosen.
		s.Add(
			loadByte(asm.R1, stackFlags),
			asm.And.Imm(asm.R1, flagSYN),
			asm.JEq.Imm(asm.R1, 0, "begun"),
		)
		c.connection(s, "syn")
		unlock(s)
		s.At("begun")
	}
	// flags wants all of mask to be as in value.
	flags := func(mask, value int32) {
		s.Add(
			loadByte(asm.R1, stackFlags), // 0 of other protocols
			asm.And.Imm(asm.R1, mask),
			asm.JNE.Imm(asm.R1, value, "pass"),
		)
	}
	switch c.rule.Kind {
	case content.SYN:
		flags(flagSYN|flagACK, flagSYN)
	case content.SYNACK:
		flags(flagSYN|flagACK, flagSYN|flagACK)
	case content.FIN:
		flags(flagFIN, flagFIN)
	case content.RST:
		flags(flagRST, flagRST)
	case content.Match:
		cond, err := content.ParseExpr(c.rule.Expr)
		if err != nil {
			return err
		}
		condition(s, cond, "pass")
	}
	if c.rule.PerConnection {
		c.connection(s, "conn")
		unlock(s)
	}
	if c.rule.Kind == content.Every {
		c.everyNth(s)
	}
	return nil
}

// counter is the register and the offset of what the rule counts: of the connection or
// of the place.
func (c *classifier) counter(ofConn, ofPage uintptr) (asm.Register, int16) {
	if c.rule.PerConnection {
		return rConn, int16(ofConn)
	}
	return rPage, int16(ofPage)
}

// everyNth jumps to pass unless a multiple of N is among the numbers of the packet's
// segments.
func (c *classifier) everyNth(s *match.Sequence) {
	var p page
	at, offset := c.counter(unsafe.Offsetof(connLayout.ordinal), unsafe.Offsetof(p.ordinal))
	s.Add(
		loadWord(asm.R2, stackSegs),
		asm.Mov.Reg(asm.R1, asm.R2),
		fetchAdd(at, asm.R1, offset),
		asm.Add.Reg(asm.R2, asm.R1),
		asm.LoadImm(asm.R3, int64(c.rule.N), asm.DWord),
		asm.Div.Reg(asm.R1, asm.R3),
		asm.Div.Reg(asm.R2, asm.R3),
		asm.JEq.Reg(asm.R1, asm.R2, "pass"),
	)
}

// takeTurn jumps to pass when Count packets were chosen already. Processors that come at
// the same time draw different turns, so there is never one too many.
func (c *classifier) takeTurn(s *match.Sequence) {
	if c.rule.Count == 0 {
		return
	}
	var p page
	at, offset := c.counter(unsafe.Offsetof(connLayout.turns), unsafe.Offsetof(p.turns))
	s.Add(
		asm.LoadImm(asm.R2, int64(c.rule.Count), asm.DWord),
		asm.LoadMem(asm.R1, at, offset, asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "pass"),
		asm.Mov.Imm(asm.R1, 1),
		fetchAdd(at, asm.R1, offset),
		asm.JGE.Reg(asm.R1, asm.R2, "pass"),
	)
}

// rest jumps to pass when the rule has nothing more to do, before it costs anything.
func (c *classifier) rest(s *match.Sequence) {
	if c.rule.Count == 0 || c.rule.PerConnection {
		return
	}
	var p page
	s.Add(
		asm.LoadMem(asm.R1, rPage, int16(unsafe.Offsetof(p.turns)), asm.DWord),
		asm.LoadImm(asm.R2, int64(c.rule.Count), asm.DWord),
		asm.JGE.Reg(asm.R1, asm.R2, "pass"),
	)
}
