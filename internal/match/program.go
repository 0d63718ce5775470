package match

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// Names of the programs that engines have at a device's hooks, by which they know each
// other's: what impairs packets itself, and what only sends them to an impairment.
const (
	programPrefix = "netemd_"

	EgressProgram  = programPrefix + "egress"
	IngressProgram = programPrefix + "ingress"
	SelectProgram  = programPrefix + "match"
)

// Load loads a program for a tc or tcx hook. It needs CAP_BPF and CAP_NET_ADMIN; the error
// has the verifier's words.
func Load(name string, ins asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: name, Type: ebpf.SchedCLS, License: "GPL", Instructions: ins})
	if err != nil {
		return nil, fmt.Errorf("load the program %s: %w", name, err)
	}
	return prog, nil
}

// ProgramName is the name of a program in the kernel, cut to 15 bytes by it. The error is
// fs.ErrNotExist when it is gone.
func ProgramName(id ebpf.ProgramID) (string, error) {
	prog, err := ebpf.NewProgramFromID(id)
	if err != nil {
		return "", err
	}
	defer func() { _ = prog.Close() }()
	info, err := prog.Info()
	if err != nil {
		return "", err
	}
	return info.Name, nil
}

// Ours reports whether a program's name is one of an engine's.
func Ours(name string) bool { return strings.HasPrefix(name, programPrefix) }
