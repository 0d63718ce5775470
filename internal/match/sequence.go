package match

import "github.com/cilium/ebpf/asm"

// Skb is the register in which a Sequence keeps its program's context, struct
// __sk_buff.
const Skb = asm.R6

// Sequence assembles a classifier's instructions, with labels. The zero value is an
// empty one.
type Sequence struct {
	ins   asm.Instructions
	label string
}

// Add appends instructions.
func (s *Sequence) Add(ins ...asm.Instruction) {
	for _, i := range ins {
		if s.label != "" {
			i, s.label = i.WithSymbol(s.label), ""
		}
		s.ins = append(s.ins, i)
	}
}

// At gives the next instruction a label.
func (s *Sequence) At(label string) {
	if s.label != "" {
		s.Add(asm.Ja.Label(label))
	}
	s.label = label
}

// Load reads n bytes of the packet at the offset in R2 to the stack, and jumps to
// label where the packet is too short. It uses R0 to R5.
func (s *Sequence) Load(stack, n int32, label string) {
	s.Add(
		asm.Mov.Reg(asm.R1, Skb),
		asm.Mov.Reg(asm.R3, asm.RFP), asm.Add.Imm(asm.R3, stack),
		asm.Mov.Imm(asm.R4, n),
		asm.FnSkbLoadBytes.Call(),
		asm.JNE.Imm(asm.R0, 0, label),
	)
}

// Instructions are those that were added. A label that was given to no instruction
// is lost.
func (s *Sequence) Instructions() asm.Instructions { return s.ins }
