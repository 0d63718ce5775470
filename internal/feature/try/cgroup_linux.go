package try

import (
	"context"
	"fmt"

	"netemd/internal/cgroup"
	"netemd/internal/feature"
	"netemd/internal/match"
	"netemd/internal/target"
)

// Cgroup tries to load a program that tells packets by the cgroup of the process that sends
// them, and of the one that they are for, and looks for the hierarchy. It needs root.
func Cgroup(ctx context.Context) feature.Feature {
	return tried(ctx, "cgroup", "Linux 6.1 or later with BTF (/sys/kernel/btf/vmlinux) and cgroup v2 mounted whole; without it targets of the kinds cgroup and unit, and --cgroup, are refused", func() (string, error) {
		root, err := cgroup.Root()
		if err != nil {
			return "", err
		}
		none := target.Cgroup{ID: ^uint64(0), Level: 1}
		ins, err := match.Classifier(target.Match{Include: []target.Flow{{SourceCgroup: none}, {DestinationCgroup: none}}}, 14)
		if err != nil {
			return "", err
		}
		prog, err := match.Load(match.SelectProgram, ins)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("packets can be told by the processes below %s, both ways", root), prog.Close()
	})
}
