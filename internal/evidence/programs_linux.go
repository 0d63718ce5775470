package evidence

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// frame is where the record lies on the program's stack, scratch eight bytes below
// it.
const (
	frame   = -recSize
	scratch = frame - 8
)

// program assembles what runs at a tracepoint: it fills a record from the socket
// in argument number arg, keeps only those of the wanted namespaces (all if there
// are none), and writes it into ring. What finds the ring full is counted in lost.
//
// Registers: R6 the socket, R7 the context, R8 the address family.
func program(kind, arg int, l layout, cookies []uint64, ring, lost *ebpf.Map) asm.Instructions {
	ins := asm.Instructions{
		asm.Mov.Reg(asm.R7, asm.R1),
		asm.LoadMem(asm.R6, asm.R7, int16(8*arg), asm.DWord),
	}
	if kind == kindSegment && l.failure { // nothing was sent: not a retransmission
		ins = append(ins,
			asm.LoadMem(asm.R1, asm.R7, 16, asm.DWord),
			asm.LSh.Imm(asm.R1, 32), // an int in a wider slot
			asm.JNE.Imm(asm.R1, 0, "out"))
	}
	ins = append(ins, asm.Mov.Imm(asm.R1, 0))
	for at := int16(scratch); at < 0; at += 8 {
		ins = append(ins, asm.StoreMem(asm.RFP, at, asm.R1, asm.DWord))
	}

	ins = append(ins, read(scratch, asm.R6, l.net, 8)...)
	ins = append(ins, asm.LoadMem(asm.R8, asm.RFP, scratch, asm.DWord))
	ins = append(ins, wanted(l, cookies)...)
	ins = append(ins, read(frame+recFamily, asm.R6, l.family, 2)...)
	ins = append(ins, read(frame+recState, asm.R6, l.state, 1)...)
	ins = append(ins, read(frame+recLocalPort, asm.R6, l.localPort, 2)...)
	ins = append(ins, read(frame+recRemotePort, asm.R6, l.remotePort, 2)...)
	if kind == kindSegment { // a request has no congestion state
		ins = append(ins, read(frame+recCAState, asm.R6, l.caState, 1)...)
		ins = append(ins, read(frame+recPending, asm.R6, l.pending, 1)...)
		ins = append(ins, read(frame+recRetransmits, asm.R6, l.retransmits, 1)...)
	}
	ins = append(ins,
		asm.StoreImm(asm.RFP, frame+recKind, int64(kind), asm.Byte),
		asm.LoadMem(asm.R8, asm.RFP, frame+recFamily, asm.Half))
	if l.local6 != 0 && l.remote6 != 0 {
		ins = append(ins, asm.JNE.Imm(asm.R8, familyInet6, "ipv4"))
		ins = append(ins, read(frame+recLocal, asm.R6, l.local6, 16)...)
		ins = append(ins, read(frame+recRemote, asm.R6, l.remote6, 16)...)
		ins = append(ins, asm.Ja.Label("write"))
	}
	v4 := read(frame+recLocal, asm.R6, l.local4, 4)
	v4[0] = v4[0].WithSymbol("ipv4")
	ins = append(ins, v4...)
	ins = append(ins, read(frame+recRemote, asm.R6, l.remote4, 4)...)

	return append(ins, emit(ring, lost)...)
}

// wanted reads the cookie of the struct net in R8, leaves for "out" unless it is one of
// cookies, if there are any, and takes the time.
func wanted(l layout, cookies []uint64) asm.Instructions {
	ins := read(frame+recCookie, asm.R8, l.cookie, 8)
	if len(cookies) > 0 {
		ins = append(ins, asm.LoadMem(asm.R1, asm.RFP, frame+recCookie, asm.DWord))
		for _, c := range cookies {
			ins = append(ins,
				asm.LoadImm(asm.R2, int64(c), asm.DWord),
				asm.JEq.Reg(asm.R1, asm.R2, "wanted"))
		}
		ins = append(ins, asm.Ja.Label("out"))
	}
	return append(ins,
		asm.FnKtimeGetNs.Call().WithSymbol("wanted"),
		asm.StoreMem(asm.RFP, frame+recTime, asm.R0, asm.DWord))
}

// emit writes the record at "write", and ends at "out".
func emit(ring, lost *ebpf.Map) asm.Instructions {
	return asm.Instructions{
		asm.LoadMapPtr(asm.R1, ring.FD()).WithSymbol("write"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, frame),
		asm.Mov.Imm(asm.R3, recSize),
		asm.Mov.Imm(asm.R4, 0),
		asm.FnRingbufOutput.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMapValue(asm.R1, lost.FD(), 0),
		asm.Mov.Imm(asm.R2, 1),
		asm.StoreXAdd(asm.R1, asm.R2, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}
}

// read copies size bytes at base+offset of the kernel's memory to the stack. An
// address that cannot be read leaves zeroes.
func read(to int32, base asm.Register, offset uint32, size int32) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Reg(asm.R1, asm.RFP),
		asm.Add.Imm(asm.R1, to),
		asm.Mov.Imm(asm.R2, size),
		asm.Mov.Reg(asm.R3, base),
		asm.Add.Imm(asm.R3, int32(offset)),
		asm.FnProbeReadKernel.Call(),
	}
}

// load puts a program into the kernel.
func load(tracepoint string, ins asm.Instructions) (*ebpf.Program, error) {
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "netem_rtx",
		Type:         ebpf.Tracing,
		AttachType:   ebpf.AttachTraceRawTp,
		AttachTo:     tracepoint,
		License:      "GPL", // bpf_probe_read_kernel is for GPL programs only
		Instructions: ins,
	})
	if err != nil {
		return nil, fmt.Errorf("tp_btf load: %s: %w", tracepoint, err)
	}
	return p, nil
}
