package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/target"
	"netemd/qdisc"
)

// kernel is what an agent says of its kernel, as far as a dry run has to know. The zero
// value is one of which nobody says anything.
type kernel struct {
	release string
	tcx     feature.State
}

// kernelWait is how long a dry run waits for an agent, which it does not need.
const kernelWait = time.Second

// kernelOf asks the agent where the answer matters: for netem at a device that is not
// netemd's.
func (a *app) kernelOf(ctx context.Context, spec fault.Spec, places []target.Place) kernel {
	if spec.Engine == fault.EBPF || !slices.ContainsFunc(places, func(p target.Place) bool { return !p.Owned }) {
		return kernel{}
	}
	agent, err := a.dial()
	if err != nil {
		return kernel{}
	}
	defer func() { _ = agent.Close() }()
	ctx, cancel := context.WithTimeout(ctx, kernelWait)
	defer cancel()
	report, err := agent.Features(ctx)
	if err != nil {
		return kernel{}
	}
	k := kernel{release: report.Kernel}
	for _, f := range report.Features {
		if f.Name == "tcx" {
			k.tcx = f.State
		}
	}
	return k
}

// hook says what netem puts at the hook of a device that is not netemd's, where that is
// no filter that tc could type, and what decides between the two.
func (k kernel) hook(p target.Place, match string, n qdisc.Netem) (tcx, note string) {
	tcx = fmt.Sprintf("attach at the head of tcx %s of %s, match %s, send to a netem and back: %v", p.Hook, p.Device, match, n)
	then := fmt.Sprintf("where %s has Ethernet's header and no clsact yet, netemd does what the tcx line says, for which tc has no words", p.Device)
	switch k.tcx {
	case feature.Yes:
		return tcx, fmt.Sprintf("tcx: the agent's kernel, %s, has it: %s; the ip and tc lines are the same in tc's words", k.release, then)
	case feature.No:
		return "", fmt.Sprintf("tcx: the agent's kernel, %s, has none: netemd takes the way of the ip and tc lines", k.release)
	}
	return tcx, "tcx: no agent says whether its kernel has it (Linux 6.6 or later does); with it, " + then + "; else it takes the way of the ip and tc lines"
}
