package ebpf

import (
	"unsafe"

	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf/model"
	"netemd/internal/match"
)

// lose jumps to pass unless the packet is lost, and goes on behind or at lost
// otherwise: netem's loss_event (net/sched/sch_netem.c).
func lose(s *match.Sequence) {
	var l slot
	s.Add(
		asm.LoadMem(asm.R1, rSlot, int16(unsafe.Offsetof(l.kind)), asm.Word),
		asm.JEq.Imm(asm.R1, model.FourState, "four-state"),
		asm.JEq.Imm(asm.R1, model.GilbertElliott, "gilbert-elliott"),
		asm.LoadMem(rAux, rSlot, int16(unsafe.Offsetof(l.loss)), asm.Word),
		asm.JEq.Imm(rAux, 0, "pass"),
	)
	random(s)
	correlate(s, "decide")
	s.At("decide")
	s.Add(asm.JGT.Reg(asm.R1, rAux, "pass"), asm.Ja.Label("lost"))
	loseFourState(s)
	loseGilbertElliott(s)
}

// spare marks a packet that carries ECN and jumps to pass, where that is asked for.
func spare(s *match.Sequence) {
	var l slot
	s.Add(
		asm.LoadMem(asm.R1, rSlot, int16(unsafe.Offsetof(l.ecn)), asm.Word),
		asm.JEq.Imm(asm.R1, 0, "drop"),
		// What a clone shares is not written to, so the headers are made the packet's
		// own first; where that is not possible, marking is not either.
		asm.Mov.Reg(asm.R1, rSkb),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnSkbPullData.Call(),
		asm.Mov.Reg(asm.R1, rSkb),
		asm.FnSkbEcnSetCe.Call(),
		asm.JNE.Imm(asm.R0, 0, "pass"),
	)
	s.At("drop")
}

// random draws 32 bits into R1: splitmix64 (https://prng.di.unimi.it/splitmix64.c) of
// seed and a counter. It uses R2.
func random(s *match.Sequence) {
	var l slot
	gamma := goldenGamma
	s.Add(
		asm.Mov.Imm(asm.R1, 1),
		fetchAdd(rSlot, asm.R1, int16(unsafe.Offsetof(l.drawn))),
		asm.Add.Imm(asm.R1, 1),
		asm.LoadImm(asm.R2, int64(gamma), asm.DWord),
		asm.Mul.Reg(asm.R1, asm.R2),
		asm.LoadMem(asm.R2, rSlot, int16(unsafe.Offsetof(l.seed)), asm.DWord),
		asm.Add.Reg(asm.R1, asm.R2),
	)
	mix := func(shift int32, factor uint64) {
		s.Add(asm.Mov.Reg(asm.R2, asm.R1), asm.RSh.Imm(asm.R2, shift), asm.Xor.Reg(asm.R1, asm.R2))
		if factor != 0 {
			s.Add(asm.LoadImm(asm.R2, int64(factor), asm.DWord), asm.Mul.Reg(asm.R1, asm.R2))
		}
	}
	mix(30, mixA)
	mix(27, mixB)
	mix(31, 0)
	s.Add(asm.RSh.Imm(asm.R1, 32))
}

// correlate is netem's get_crandom for the number in R1; without a correlation it
// jumps to label.
func correlate(s *match.Sequence, label string) {
	var l slot
	s.Add(
		asm.LoadMem(asm.R3, rSlot, int16(unsafe.Offsetof(l.rho)), asm.Word),
		asm.JEq.Imm(asm.R3, 0, label),
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
}

// chance loads the i-th of a chain's chances.
func chance(to asm.Register, i uintptr) asm.Instruction {
	var l slot
	return asm.LoadMem(to, rSlot, int16(unsafe.Offsetof(l.chances)+i*unsafe.Sizeof(l.chances[0])), asm.Word)
}

// become moves a chain to a state.
func become(s *match.Sequence, state int32, then string) {
	var l slot
	s.Add(
		asm.Mov.Imm(asm.R2, state),
		asm.StoreMem(rSlot, int16(unsafe.Offsetof(l.state)), asm.R2, asm.Word),
	)
	if then != "" {
		s.Add(asm.Ja.Label(then))
	}
}

// loseFourState is model.Chain's fourState.
func loseFourState(s *match.Sequence) {
	const p13, p31, p32, p14, p23 = 0, 1, 2, 3, 4
	var l slot
	s.At("four-state")
	random(s)
	s.Add(
		asm.LoadMem(asm.R4, rSlot, int16(unsafe.Offsetof(l.state)), asm.Word),
		asm.JEq.Imm(asm.R4, model.SentInBurst, "sent-in-burst"),
		asm.JEq.Imm(asm.R4, model.LostInBurst, "lost-in-burst"),
		asm.JEq.Imm(asm.R4, model.LostInGap, "to-sent-in-gap"),

		chance(asm.R2, p14), chance(asm.R3, p13),
		asm.Add.Reg32(asm.R3, asm.R2),
		asm.JLT.Reg(asm.R1, asm.R2, "to-lost-in-gap"),
		asm.JEq.Reg(asm.R1, asm.R2, "pass"),
		asm.JLT.Reg(asm.R1, asm.R3, "to-lost-in-burst"),
		asm.Ja.Label("pass"),
	)
	s.At("sent-in-burst")
	s.Add(
		chance(asm.R2, p23),
		asm.JLT.Reg(asm.R1, asm.R2, "to-lost-in-burst"),
		asm.Ja.Label("pass"),
	)
	s.At("lost-in-burst")
	s.Add(
		chance(asm.R2, p32), chance(asm.R3, p31),
		asm.Add.Reg32(asm.R3, asm.R2),
		asm.JLT.Reg(asm.R1, asm.R2, "to-sent-in-burst"),
		asm.JGT.Reg(asm.R1, asm.R3, "lost"),
		asm.JEq.Reg(asm.R1, asm.R2, "pass"),
		asm.JEq.Reg(asm.R1, asm.R3, "pass"),
	)
	s.At("to-sent-in-gap")
	become(s, model.SentInGap, "pass")
	s.At("to-sent-in-burst")
	become(s, model.SentInBurst, "pass")
	s.At("to-lost-in-gap")
	become(s, model.LostInGap, "lost")
	s.At("to-lost-in-burst")
	become(s, model.LostInBurst, "lost")
}

// loseGilbertElliott is model.Chain's gilbertElliott. It ends where the packet is lost.
func loseGilbertElliott(s *match.Sequence) {
	const p, r, h, k = 0, 1, 2, 3
	var l slot
	s.At("gilbert-elliott")
	random(s)
	s.Add(
		asm.LoadMem(asm.R4, rSlot, int16(unsafe.Offsetof(l.state)), asm.Word),
		asm.JEq.Imm(asm.R4, model.Bad, "bad"),
		chance(asm.R2, p),
		asm.JGE.Reg(asm.R1, asm.R2, "good"),
	)
	become(s, model.Bad, "")
	s.At("good")
	random(s)
	s.Add(
		chance(asm.R2, k),
		asm.JLT.Reg(asm.R1, asm.R2, "lost"),
		asm.Ja.Label("pass"),
	)
	s.At("bad")
	s.Add(
		chance(asm.R2, r),
		asm.JGE.Reg(asm.R1, asm.R2, "still-bad"),
	)
	become(s, model.Good, "")
	s.At("still-bad")
	random(s)
	s.Add(
		chance(asm.R2, h),
		asm.JLE.Reg(asm.R1, asm.R2, "pass"),
	)
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
