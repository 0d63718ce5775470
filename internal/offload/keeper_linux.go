package offload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
)

// Off switches off, for the fault id, what Read found at the devices, whatever they and
// their namespaces are called by now, records it first, and reads it back: Before of what it returns are the names that were on before any
// fault, Off those of them that are off now. What a driver has on for good stays on.
// When it fails everything is as it was. A second Off of one fault adds devices to the
// first. It needs root. The error is fs.ErrNotExist when a device is gone.
func (k *Keeper) Off(ctx context.Context, id string, devices []fault.Offload) ([]fault.Offload, error) {
	k.work.Lock()
	defer k.work.Unlock()
	done, err := k.off(ctx, id, devices)
	if err != nil {
		return nil, fmt.Errorf("offload off: %w", err)
	}
	return done, nil
}

func (k *Keeper) off(ctx context.Context, id string, devices []fault.Offload) ([]fault.Offload, error) {
	records, err := k.all()
	if err != nil {
		return nil, err
	}
	in := opened{}
	defer in.close()
	r, done, err := plan(ctx, in, id, devices, records)
	if err != nil || len(r.Devices) == 0 {
		return done, err
	}
	// What this fault has switched off already stays in the record.
	whole := r
	if i := slices.IndexFunc(records, func(o record) bool { return o.ID == id }); i >= 0 {
		old := slices.DeleteFunc(slices.Clone(records[i].Devices), func(c change) bool { return slices.ContainsFunc(r.Devices, c.same) })
		whole.Devices = append(old, r.Devices...)
	}
	if err := k.save(whole); err != nil {
		return nil, err
	}
	failpoint.At("offload.off.recorded")
	for _, c := range r.Devices {
		if err = in[c.Namespace].switchOff(c); err != nil {
			break
		}
	}
	if err == nil {
		done, err = readBack(in, done)
	}
	if err != nil {
		ctx := context.WithoutCancel(ctx)
		undone, uerr := release(ctx, in, r.Devices, records)
		if len(undone.failed) == 0 {
			uerr = k.back(id, records)
		}
		return nil, errors.Join(err, uerr)
	}
	return done, nil
}

// back makes the fault's record what it was.
func (k *Keeper) back(id string, records []record) error {
	for _, r := range records {
		if r.ID == id {
			return k.save(r)
		}
	}
	return k.remove(id)
}

// plan says what has to be switched off, and, in the second answer, what is on before.
func plan(ctx context.Context, in opened, id string, devices []fault.Offload, records []record) (record, []fault.Offload, error) {
	boot, err := bootID()
	if err != nil {
		return record{}, nil, err
	}
	r := record{SchemaVersion: recordVersion, BootID: boot, ID: id}
	before := make([]fault.Offload, 0, len(devices))
	for _, d := range devices {
		n, l, err := in.device(ctx, d)
		if err != nil {
			return record{}, nil, err
		}
		s, err := n.read(l)
		if err != nil {
			return record{}, nil, err
		}
		c := change{Namespace: n.name, Cookie: n.cookie, Device: l.Attrs().Name, Index: l.Attrs().Index}
		for name := range s.wanted {
			if s.switchable[name] && !spreads(l.Type(), name) {
				c.Features = append(c.Features, name)
			}
		}
		if s.segments > 1 {
			c.Segments = s.segments
		}
		on := s.names()
		// What another fault holds off was on before.
		for _, held := range heldBy(records, c) {
			c.Features = append(c.Features, held.Features...)
			on = append(on, held.Features...)
			if held.Segments != 0 {
				c.Segments = held.Segments
				on = append(on, GSOMaxSegs)
			}
		}
		c.Features, on = unique(c.Features), unique(on)
		o := c.offload()
		o.Before = on
		before = append(before, o)
		if len(c.Features) > 0 || c.Segments > 0 {
			r.Devices = append(r.Devices, c)
		}
	}
	return r, before, nil
}

// spreads reports whether a feature that is switched off at a device of this kind goes
// off at other devices too, which would not come back (netdev_sync_lower_features of
// net/core/dev.c).
func spreads(kind, feature string) bool {
	return feature == "rx-lro" && (kind == "bond" || kind == "team" || kind == "vlan" || kind == "macvlan")
}

func unique(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// heldBy are the changes that the records have of the device.
func heldBy(records []record, device change) []change {
	var held []change
	for _, r := range records {
		for _, c := range r.Devices {
			if c.same(device) {
				held = append(held, c)
			}
		}
	}
	return held
}

// switchOff makes the change.
func (n *namespace) switchOff(c change) error {
	l, err := n.link(c.Index)
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	for _, name := range c.Features {
		wanted[name] = false
	}
	if err := n.set(c, wanted); err != nil {
		return err
	}
	failpoint.At("offload.off.features")
	if c.Segments > 0 {
		err = n.setSegments(l, c, 1)
		failpoint.At("offload.off.segments")
	}
	return err
}

// set asks for features; none is no request.
func (n *namespace) set(c change, wanted map[string]bool) error {
	if len(wanted) == 0 {
		return nil
	}
	if err := n.tool.set(c.Index, wanted); err != nil {
		return fmt.Errorf("%s in %s: %w", c.Device, n, notFound(err))
	}
	return nil
}

// readBack fills in what is off now, and refuses what was to be and is not.
func readBack(in opened, before []fault.Offload) ([]fault.Offload, error) {
	done := slices.Clone(before)
	for i, d := range done {
		n := in[d.Namespace]
		l, err := n.link(d.Index)
		if err != nil {
			return nil, err
		}
		s, err := n.read(l)
		if err != nil {
			return nil, err
		}
		var stayed []string
		for _, name := range d.Before {
			on := s.active[name] || name == GSOMaxSegs && s.segments > 1
			switch {
			case !on:
				done[i].Off = append(done[i].Off, name)
			case s.switchable[name] && !spreads(l.Type(), name) || name == GSOMaxSegs:
				stayed = append(stayed, name)
			}
		}
		if len(stayed) > 0 {
			return nil, fmt.Errorf("%s in %s: still on: %s", d.Device, n, strings.Join(stayed, ", "))
		}
	}
	return done, nil
}
