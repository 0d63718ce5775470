package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lease"
	"netemd/internal/offload"
	"netemd/internal/prober"
	"netemd/internal/target"
	"netemd/probe"
)

// neutralizer puts the neutral root netem on a device that was just made.
type neutralizer interface {
	Neutral(ctx context.Context, p target.Place) error
}

// newLabs makes the lab manager. Where the kernel has sch_netem, each wire device
// gets its neutral root before anything passes.
func (a *Agent) newLabs() (*lab.Manager, error) {
	cfg := lab.Config{StateDir: a.cfg.StateDir, Log: a.cfg.Log}
	if e, ok := a.engines[fault.Netem].(neutralizer); ok {
		cfg.NewDevice = e.Neutral
	}
	return lab.New(cfg)
}

// newOffloads keeps what has to be switched back in the state folder.
func newOffloads(cfg Config) *offload.Keeper {
	return offload.New(filepath.Join(cfg.StateDir, "offload"))
}

// measure runs a probe against a target, with the kernel's evidence.
func (a *Agent) measure(ctx context.Context, r probe.Request, report func(done, count int)) (probe.Result, error) {
	r = r.WithDefaults()
	if err := r.Validate(); err != nil {
		return probe.Result{}, err
	}
	t, err := a.resolve(ctx, r.Target)
	if err != nil {
		return probe.Result{}, err
	}
	login, err := a.labs.Postgres(t.Lab, t.Address)
	if err != nil {
		return probe.Result{}, err
	}
	address := t.Address
	if r.Layer == probe.LayerProxy {
		if !t.Proxy.IsValid() {
			return probe.Result{}, fmt.Errorf("probe: target %s has no proxy: %w", t.Name, errors.ErrUnsupported)
		}
		address = t.Proxy
	}
	return prober.Measure(ctx, prober.Config{
		ClientNamespace: t.ClientNamespace, ServerNamespace: t.ServerNamespace,
		Order:       prober.Order{Request: r, Address: address, User: login.User, Password: login.Password, Database: login.Database},
		PathDelayed: a.pathDelayed(ctx, r, t),
		Report:      report,
	})
}

// pathDelayed reports whether a fault delays everything on the way to a target: its
// own, or one on its packets at a device of its lab.
func (a *Agent) pathDelayed(ctx context.Context, r probe.Request, t target.Target) bool {
	for _, f := range a.leases.List(ctx) {
		if f.Spec.Packet != nil && r.Layer != probe.LayerProxy && f.Spec.Packet.Delay > 0 && (f.Spec.Target == r.Target || a.onTheWay(ctx, f, t)) {
			return true
		}
		for _, x := range f.Spec.Toxics {
			if f.Spec.Target == r.Target && r.Layer == probe.LayerProxy && (x.Kind == fault.Latency || x.Kind == fault.Bandwidth || x.Kind == fault.Slicer) {
				return true
			}
		}
	}
	return false
}

// onTheWay reports whether a fault on a device meets the packets of t.
func (a *Agent) onTheWay(ctx context.Context, f fault.Fault, t target.Target) bool {
	if f.Spec.Selector == nil || !slices.Contains([]string{t.ClientNamespace, t.ServerNamespace, t.To.Namespace}, f.Spec.Selector.Namespace) {
		return false
	}
	held, err := a.leases.Held(ctx, f.ID)
	if err != nil {
		return false // it has ended
	}
	return slices.ContainsFunc(held.Places, func(h lease.Held) bool {
		return h.Place.Match.Overlaps(t.To.Match) || h.Place.Match.Overlaps(t.From.Match)
	})
}

// cleanupTime bounds what Cleanup may take.
const cleanupTime = time.Minute

// Cleanup removes everything that an agent of this state folder left when it was
// killed: faults, labs with their services, and a stale socket. It needs root and no
// agent, and returns what it removed. The error says that an agent is alive, or what
// could not be removed.
func Cleanup(ctx context.Context, cfg Config) ([]string, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("cleanup needs root to change the network: %w", os.ErrPermission)
	}
	cfg, err := cfg.normalize()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cleanupTime, errors.New("cleanup took too long"))
	defer cancel()
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		return nil, sweep(ctx, cfg)
	}
	lock, err := lockStateDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	var removed []string
	labs, err := lab.New(lab.Config{StateDir: cfg.StateDir, Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	for _, name := range labs.Recorded() {
		removed = append(removed, fmt.Sprintf("lab %s, with its faults and services", name))
	}
	if st, err := os.Lstat(cfg.Socket); err == nil && st.Mode().Type() == os.ModeSocket {
		removed = append(removed, "socket "+cfg.Socket)
	}
	return removed, errors.Join(labs.Cleanup(ctx), labs.Close(), sweep(ctx, cfg), newOffloads(cfg).Repair(ctx), removeSocket(cfg.Socket), removeStateDir(cfg, lock))
}
