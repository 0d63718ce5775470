package netem

import (
	"context"
	"fmt"

	"github.com/cilium/ebpf"
	tcx "github.com/cilium/ebpf/link"

	"netemd/internal/match"
	"netemd/internal/target"
)

// ahead says which programs of somebody else come before x at its hook, where a verdict
// ends a packet's way: at ingress an XDP program, and those at tcx that are before ours,
// all of them where ours is at a clsact. The filters there are looked at where ours is
// set.
func (c *conn) ahead(x *detour, l link) []string {
	var notes []string
	say := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf(format, args...)+" of somebody else comes first: what it decides on never gets to the fault")
	}
	if x.at.Hook == target.Ingress && l.xdp {
		say("an XDP program")
	}
	_ = c.ns.Do(context.Background(), func() error {
		found, err := tcx.QueryPrograms(tcx.QueryOptions{Target: l.index, Attach: attachType(x.at.Hook)})
		if err != nil {
			return err // no tcx, say
		}
		for _, p := range found.Programs {
			if x.entry != nil && uint32(p.ID) == x.entry.number {
				break
			}
			if name, _ := match.ProgramName(p.ID); !match.Ours(name) {
				say("a tcx program, %q with the number %d,", name, p.ID)
			}
		}
		return nil
	})
	return notes
}

func attachType(hook target.Hook) ebpf.AttachType {
	if hook == target.Ingress {
		return ebpf.AttachTCXIngress
	}
	return ebpf.AttachTCXEgress
}
