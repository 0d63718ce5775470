package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/engine/ebpf"
	"netemd/internal/engine/netem"
	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/feature/try"
	"netemd/internal/lab"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/namespaces"
)

// features tries what the kernel can do, and says which engine auto takes.
func features(ctx context.Context) feature.Report {
	r := feature.Report{Kernel: release(), Features: []feature.Feature{
		try.Netem(ctx), try.IFB(ctx), try.TCX(ctx), try.CLSBPF(ctx), try.TUN(ctx), try.TPBTF(ctx),
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

// clearLeftovers takes away the faults of an agent that was killed: the wires of
// adopted labs go back to neutral, what its programs left there and on others' devices
// is removed, and offload settings are restored. Its proxies cleared themselves when
// it died.
func (a *Agent) clearLeftovers(ctx context.Context) error {
	targets, err := a.labs.Targets(ctx)
	if err != nil {
		return err
	}
	var errs []error
	if e := a.engines[fault.Netem]; e != nil {
		for _, t := range targets {
			errs = append(errs, e.Clear(ctx, t.To), e.Clear(ctx, t.From))
		}
	}
	// Neither another's namespace nor one setting that does not come back keeps us from
	// starting, or the rest from being cleared; what is recorded is tried again.
	if err := errors.Join(sweep(ctx, a.cfg), a.offloads.Repair(ctx)); err != nil {
		a.cfg.Log.Error("faults of an earlier agent", "err", err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("faults of an earlier agent: %w", err)
	}
	return nil
}

// sweep removes what dead agents with this state folder left on devices that are not
// netemd's own, in the agent's namespace and in all that have a name, and says what of
// the ebpf engine it was.
func sweep(ctx context.Context, cfg Config) error {
	entries, err := namespaces.List()
	if err != nil {
		return err
	}
	names := []string{""}
	for _, e := range entries {
		if !e.Stale {
			names = append(names, e.Name)
		}
	}
	removed, err := ebpf.Sweep(ctx, names)
	for _, what := range removed {
		cfg.Log.Warn("a fault ended with an earlier agent; removed what it left", "what", what)
	}
	return errors.Join(netem.Sweep(ctx, names, cfg.StateDir), err)
}

// streamEngine finds the control socket of a target's proxy and hands it to the
// stream engine.
type streamEngine struct {
	labs    *lab.Manager
	proxies *stream.Engine
}

func newStreamEngine(labs *lab.Manager) streamEngine {
	return streamEngine{labs: labs, proxies: stream.New(stream.Config{Restart: stream.Restart})}
}

func (s streamEngine) Set(ctx context.Context, t target.Target, toxics []fault.Toxic, deadline time.Time) error {
	socket, err := s.labs.ProxySocket(t.Lab, t.Proxy)
	if err != nil {
		return err
	}
	return s.proxies.Set(ctx, socket, toxics, deadline)
}

func (s streamEngine) Read(ctx context.Context, t target.Target) ([]fault.Toxic, error) {
	socket, err := s.labs.ProxySocket(t.Lab, t.Proxy)
	if err != nil {
		return nil, err
	}
	toxics, err := s.proxies.Read(ctx, socket)
	if errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w: %w", fs.ErrNotExist, err) // the proxy has died
	}
	return toxics, err
}

func (s streamEngine) Clear(ctx context.Context, t target.Target) error {
	socket, err := s.labs.ProxySocket(t.Lab, t.Proxy)
	if err != nil {
		return err
	}
	err = s.proxies.Clear(ctx, socket)
	if stuck, ok := errors.AsType[*stream.StuckError](err); ok && stuck.Recovered {
		return nil // started anew, without toxics
	}
	if errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
		return nil // the proxy has died, and its toxics with it
	}
	return err
}
