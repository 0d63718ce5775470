package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/offload"
	"netemd/internal/target"
)

// labUp brings a lab up, unless as many are up as may be; the error is fault.ErrBusy then.
func (a *Agent) labUp(ctx context.Context, def lab.Definition, progress func(step string)) (lab.Info, error) {
	infos, err := a.labs.List(ctx)
	if err != nil {
		return lab.Info{}, err
	}
	if err := labRoom(infos, def.Name, a.cfg.Settings.Limits.Labs); err != nil {
		return lab.Info{}, err
	}
	return a.labs.Up(ctx, def, lab.Identity{}, progress)
}

// labRoom refuses one lab more than may be up; one that is up already has its place.
func labRoom(up []lab.Info, name string, most int) error {
	if len(up) < most || slices.ContainsFunc(up, func(i lab.Info) bool { return i.Name == name }) {
		return nil
	}
	return fault.WithHint(fmt.Errorf("lab up: %w: %d labs are up, which is the most (limits.labs)", fault.ErrBusy, len(up)), "'netemctl lab list' shows them")
}

// labDown ends the faults on a lab's targets, then takes it down.
func (a *Agent) labDown(ctx context.Context, name string) (bool, error) {
	infos, err := a.labs.List(ctx)
	if err != nil {
		return false, err
	}
	for _, i := range infos {
		if i.Name == name {
			existed := false
			err := a.leases.Retire(ctx, i.Targets, func(ctx context.Context) (err error) {
				existed, err = a.labs.Down(ctx, name)
				return err
			})
			return existed, err
		}
	}
	if _, ok := lab.Builtin(name); !ok {
		return false, unknownLab(name)
	}
	return false, nil
}

func unknownLab(name string) error {
	var known []string
	for _, d := range lab.Builtins() {
		known = append(known, d.Name)
	}
	return fmt.Errorf("%w %q: known: %s", lab.ErrUnknown, name, strings.Join(known, ", "))
}

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
