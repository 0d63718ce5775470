package offload

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
)

// Restore switches back on what Off switched off for the fault id, as it was, except
// what another fault still holds off; that comes back with the last of them. A device
// that is gone needs nothing, and is returned; a fault without a record needs nothing
// either. What fails stays recorded, and can be tried again. It needs root.
func (k *Keeper) Restore(ctx context.Context, id string) (gone []fault.Offload, err error) {
	k.work.Lock()
	defer k.work.Unlock()
	done, err := k.restore(ctx, id)
	if err != nil {
		err = fmt.Errorf("offload restore: %w", err)
	}
	return done.gone, err
}

func (k *Keeper) restore(ctx context.Context, id string) (released, error) {
	r, err := k.load(id)
	if err != nil || r == nil {
		return released{}, err
	}
	records, err := k.all()
	if err != nil {
		return released{}, err
	}
	if !slices.ContainsFunc(records, func(o record) bool { return o.ID == id }) {
		return released{}, nil // it was of an earlier run of the kernel, and is dropped
	}
	others := slices.DeleteFunc(records, func(o record) bool { return o.ID == id })
	in := opened{}
	defer in.close()
	done, err := release(ctx, in, r.Devices, others)
	if r.Devices = done.failed; len(r.Devices) > 0 {
		return done, errors.Join(err, k.save(*r))
	}
	err = errors.Join(err, k.remove(id))
	failpoint.At("offload.back.forgotten")
	return done, err
}

// Repair restores what every record says, after a crash, and returns the devices that it
// switched back, with what in Off, and those that are gone. No other process may use the
// folder. It needs root.
func (k *Keeper) Repair(ctx context.Context) (back, gone []fault.Offload, err error) {
	k.work.Lock()
	defer k.work.Unlock()
	records, err := k.all()
	errs := []error{err}
	for _, r := range records {
		done, err := k.restore(ctx, r.ID)
		back, gone, errs = append(back, done.back...), append(gone, done.gone...), append(errs, err)
	}
	k.tidy()
	if err := errors.Join(errs...); err != nil {
		return back, gone, fmt.Errorf("offload repair: %w", err)
	}
	return back, gone, nil
}

// released is what became of changes that were to be undone: switched back, with what
// in Off, without a device any more, or as before.
type released struct {
	back, gone []fault.Offload
	failed     []change
}

// release switches back what no other record holds.
func release(ctx context.Context, in opened, changes []change, others []record) (done released, err error) {
	var errs []error
	for _, c := range changes {
		o := c.offload()
		n, err := in.identified(ctx, c)
		if err == nil {
			o.Off, err = n.switchBack(c, heldBy(others, c))
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			done.gone = append(done.gone, o)
		case err != nil:
			done.failed, errs = append(done.failed, c), append(errs, err)
		case len(o.Off) > 0:
			done.back = append(done.back, o)
		}
	}
	return done, errors.Join(errs...)
}

// switchBack undoes the change but for what is held, and reads it back. It returns the
// names of what is on again.
func (n *namespace) switchBack(c change, held []change) ([]string, error) {
	wanted, segments := map[string]bool{}, c.Segments
	for _, name := range c.Features {
		wanted[name] = true
	}
	for _, h := range held {
		for _, name := range h.Features {
			delete(wanted, name)
		}
		if h.Segments != 0 {
			segments = 0
		}
	}
	l, err := n.link(c.Index)
	if err != nil {
		return nil, err
	}
	if err := n.set(c, wanted); err != nil {
		return nil, err
	}
	failpoint.At("offload.back.features")
	back := slices.Sorted(maps.Keys(wanted))
	// Another value than ours is somebody else's wish.
	if segments != 0 && l.Attrs().GSOMaxSegs == 1 {
		if err := n.setSegments(l, c, segments); err != nil {
			return nil, err
		}
		back = append(back, GSOMaxSegs)
		failpoint.At("offload.back.segments")
	}
	s, err := n.read(l)
	if err != nil {
		return nil, err
	}
	for name := range wanted {
		if !s.wanted[name] {
			return nil, fmt.Errorf("%s in %s: %s does not come back", c.Device, n, name)
		}
	}
	return back, nil
}
