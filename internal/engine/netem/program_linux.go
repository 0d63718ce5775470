package netem

import (
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"netemd/internal/match"
	"netemd/internal/target"
)

// load loads the program that selects m behind a header of that many bytes, and
// returns its number too.
func load(m target.Match, header int) (*ebpf.Program, uint32, error) {
	ins, err := match.Classifier(m, header)
	if err != nil {
		return nil, 0, err
	}
	return loadProgram("netemd_match", ins)
}

func loadProgram(name string, ins asm.Instructions) (*ebpf.Program, uint32, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: ins})
	if err != nil {
		return nil, 0, fmt.Errorf("load the program %s: %w", name, err)
	}
	info, err := prog.Info()
	if err == nil {
		if id, ok := info.ID(); ok {
			return prog, uint32(id), nil
		}
		err = fmt.Errorf("the kernel gave no number")
	}
	_ = prog.Close()
	return nil, 0, fmt.Errorf("read back the program %s: %w", name, err)
}
