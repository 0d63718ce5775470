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
	return loadProgram(match.SelectProgram, ins)
}

// loadProgram is match.Load, and returns the program's number too.
func loadProgram(name string, ins asm.Instructions) (*ebpf.Program, uint32, error) {
	prog, err := match.Load(name, ins)
	if err != nil {
		return nil, 0, err
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
