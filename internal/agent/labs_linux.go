package agent

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/offload"
	"netemd/internal/target"
	"netemd/internal/wire"
)

// labUp brings a lab up, unless as many are up as may be; the error is fault.ErrBusy then.
func (a *Agent) labUp(ctx context.Context, def lab.Definition, by lab.Identity, progress func(step string)) (lab.Info, error) {
	return a.makeLab(ctx, def, by, a.labs.Up, progress)
}

// makeLab has a lab made, by lab.Manager's Up or Hold, where there is room for it.
func (a *Agent) makeLab(
	ctx context.Context, def lab.Definition, by lab.Identity,
	up func(context.Context, lab.Definition, lab.Identity, func(step string)) (lab.Info, error), progress func(step string),
) (lab.Info, error) {
	ctx, done, err := a.places.take(ctx, def.Name, by, a.cfg.Settings.Limits.Labs, func() ([]lab.Info, error) { return a.labs.List(ctx) })
	if err != nil {
		return lab.Info{}, err
	}
	defer done()
	return up(ctx, def, by, progress)
}

// labIdentity is who asked for a lab, who its commands run as: who may open the socket gets
// no shell by it that he had not before. A peer over TCP is nobody on this host, and may
// have commands at all only by the verb exec.
func (a *Agent) labIdentity(ctx context.Context, def lab.Definition) (lab.Identity, error) {
	p, ok := peerOf(ctx)
	switch {
	case !ok:
		return lab.Identity{}, errors.New("lab up: it is not known who asks")
	case !p.byTLS():
		return lab.Identity{UID: p.uid, GID: p.gid, Groups: p.groups}, nil
	}
	if def.Commands() {
		if err := a.policy.Allow(p.access(), access.Exec, def.Name); err != nil {
			return lab.Identity{}, fmt.Errorf("lab up: it has commands: %w", err)
		}
	}
	return lab.Identity{UID: overflowID, GID: overflowID}, nil
}

// overflowID is the user and group without rights that every Linux has (overflowuid of
// proc_sys_kernel(5)).
const overflowID = 65534

// labMessage is a lab with its definition as a text, which it has unless a base impairment
// has a distribution of the user's own.
func labMessage(info lab.Info, def lab.Definition) (*netemv1.Lab, error) {
	m := wire.Lab(info)
	text, err := labfile.YAML(def)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return nil, err
	}
	m.Definition = string(text)
	return m, nil
}

// labRoom refuses one lab more than may be up; one that is up, or being made, has its place.
func labRoom(up []string, name string, most int) error {
	if len(up) < most || slices.Contains(up, name) {
		return nil
	}
	return fault.WithHint(fmt.Errorf("lab up: %w: %d labs are up, which is the most (limits.labs)", fault.ErrBusy, len(up)), "'netemctl lab list' shows them")
}

// labDown ends the faults on a lab's targets, then takes it down. One that is being made is
// broken off first: what says "down" at the end of a script must not leave it to come up.
func (a *Agent) labDown(ctx context.Context, name string) (bool, error) {
	making, err := a.places.breakOff(ctx, name)
	if err != nil {
		return making, err
	}
	infos, err := a.labs.List(ctx)
	if err != nil {
		return making, err
	}
	for _, i := range infos {
		if i.Name == name {
			if err := checkLabOwner(ctx, i); err != nil {
				return true, err
			}
			existed := false
			err := a.leases.Retire(ctx, append(targetKeys(i), serviceKeys(i)...), func(ctx context.Context) (err error) {
				existed, err = a.labs.Down(ctx, name)
				return err
			})
			return existed || making, err
		}
	}
	return making, nil // of a file, perhaps: nobody knows which labs there could be
}

// neutralizer puts the neutral root netem on a device that was just made.
type neutralizer interface {
	Neutral(ctx context.Context, p target.Place) error
}

// newLabs makes the lab manager. Where the kernel has sch_netem, each wire device
// gets its neutral root before anything passes.
func (a *Agent) newLabs() (*lab.Manager, error) {
	cfg := lab.Config{StateDir: a.cfg.StateDir, Log: a.cfg.Log, Engine: a.baseEngine()}
	if e, ok := a.engines[fault.Netem].(neutralizer); ok {
		cfg.NewDevice = e.Neutral
	}
	return lab.New(cfg)
}

// newOffloads keeps what has to be switched back in the state folder.
func newOffloads(cfg Config) *offload.Keeper {
	return offload.New(filepath.Join(cfg.StateDir, "offload"))
}
