package agent

import (
	"fmt"

	"netemd/internal/container"
	"netemd/internal/fault"
	"netemd/internal/target"
)

// enginePlacements say what each engine of packets would do at a target's places; of somebody's
// Toxiproxy, which has none, nothing.
func (a *Agent) enginePlacements(t target.Target) []target.EnginePlacement {
	if t.Toxiproxy != nil {
		return nil // no packet of it passes here
	}
	way := "clsact"
	if works(a.features, "tcx") {
		way = "tcx"
	}
	return []target.EnginePlacement{
		a.enginePlacement(fault.Netem, "sch_netem", t, func(p target.Place) string {
			if p.Owned {
				return "the root netem of " + p.Device
			}
			return fmt.Sprintf("a netem on an ifb, to which a program at %s of %s (%s) sends the packets", p.Hook, p.Device, way)
		}),
		a.enginePlacement(fault.EBPF, "tcx or cls_bpf", t, func(p target.Place) string {
			return fmt.Sprintf("a program at %s of %s (%s); a delay or rate by a queue of netemd's", p.Hook, p.Device, way)
		}),
	}
}

func (a *Agent) enginePlacement(e fault.Engine, needs string, t target.Target, words func(target.Place) string) target.EnginePlacement {
	if a.engines[e] == nil {
		return target.EnginePlacement{Engine: string(e), Unavailable: fmt.Sprintf("this kernel (%s) lacks %s", a.features.Kernel, needs)}
	}
	return target.EnginePlacement{Engine: string(e), To: words(t.To), From: words(t.From)}
}

// begun fills in when the process of a definition began.
func begun(d target.Definition) (target.Definition, error) {
	if d.Kind() != target.KindProcess {
		return d, nil
	}
	var err error
	if d.Started, err = container.Started(d.PID); err != nil {
		return d, fmt.Errorf("target %s: %w: %w", d, target.ErrVanished, err)
	}
	return d, nil
}

// canonical is an inline target as it is always said, so that the same one is the same text.
func canonical(text string) string {
	if target.Inline(text) {
		if d, err := target.Parse(text); err == nil {
			return d.String()
		}
	}
	return text
}
