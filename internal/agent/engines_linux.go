package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf"
	"netemd/internal/engine/netem"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/feature/try"
	"netemd/internal/lease"
	"netemd/internal/target"
)

// features tries what the kernel can do, and says which engine auto takes.
func features(ctx context.Context) feature.Report {
	r := feature.Report{Kernel: release(), Features: []feature.Feature{
		try.Netem(ctx), try.IFB(ctx), try.TCX(ctx), try.CLSBPF(ctx), try.TUN(ctx), try.TPBTF(ctx), try.Cgroup(ctx),
	}}
	switch {
	case works(r, "sch_netem"):
		r.Auto, r.AutoReason = fault.Netem, "the kernel has sch_netem: tried in a scratch namespace"
	case works(r, "tcx"):
		r.Auto, r.AutoReason = fault.EBPF, fmt.Sprintf("kernel %s has no sch_netem; the ebpf engine works on tcx", r.Kernel)
	case works(r, "cls_bpf"):
		r.Auto, r.AutoReason = fault.EBPF, fmt.Sprintf("kernel %s has no sch_netem and no tcx; the ebpf engine works on clsact and cls_bpf", r.Kernel)
	}
	return r
}

// choose says what auto takes at these places on this kernel: what it takes in general,
// unless a place is at a device of somebody else's and the kernel lacks what netem
// needs there.
func (a *Agent) choose(_ context.Context, places []target.Place) (fault.Engine, string, error) {
	r := a.features
	if r.Auto == "" {
		return "", "", fmt.Errorf("apply: this kernel (%s) can carry no packet fault ('netemctl doctor' says why): %w", r.Kernel, errors.ErrUnsupported)
	}
	foreign := slices.ContainsFunc(places, func(p target.Place) bool { return !p.Owned })
	if r.Auto == fault.Netem && foreign && !works(r, try.IFBName) && a.engines[fault.EBPF] != nil {
		return fault.EBPF, fmt.Sprintf("kernel %s has sch_netem, but not what it needs on a device that is not netemd's own ('netemctl doctor' says what)", r.Kernel), nil
	}
	return r.Auto, r.AutoReason, nil
}

func works(r feature.Report, name string) bool {
	for _, f := range r.Features {
		if f.Name == name {
			return f.State == feature.Yes
		}
	}
	return false
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "unknown"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// newEngines makes the engines that this kernel can carry, for the agent with that
// state folder.
func newEngines(r feature.Report, state string, log *slog.Logger) (map[fault.Engine]lease.Engine, error) {
	engines := map[fault.Engine]lease.Engine{}
	if works(r, "sch_netem") {
		engines[fault.Netem] = netem.New(netem.Config{State: state, Log: log})
	}
	if works(r, "tcx") || works(r, "cls_bpf") {
		e, err := ebpf.New(ebpf.Config{Log: log})
		if err != nil {
			return engines, fmt.Errorf("ebpf engine: %w", err)
		}
		engines[fault.EBPF] = e
	}
	return engines, nil
}
