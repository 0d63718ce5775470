package netem

import (
	"errors"
	"io/fs"
	"maps"
	"sync"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// key is a device; a place is a device and a flow there.
type key struct {
	namespace string
	index     int
}

// device is what the engine remembers of a device.
type device struct {
	mu sync.Mutex
	// forgotten says that the engine no longer has it: whoever waited for mu takes another.
	forgotten bool
	// root is that of a device of ours, owner the place whose impairment is in force
	// there: the zero Place when there is none, or none that this process set.
	root  root
	owner target.Place
	// detours are the places of a device of somebody else, by their Key.
	detours map[string]*detour
}

// held reports whether an impairment that this process set is in force on the root.
func (d *device) held() bool { return d.owner.Index != 0 }

// change is root.change, and remembers whose it is.
func (d *device) change(c roots, p target.Place, from qdisc.State, n qdisc.Netem) error {
	if err := d.root.change(c, nameOf(p), p, from, n); err != nil {
		return err
	}
	d.owner = p
	if n.IsZero() {
		d.owner, d.root.asked = target.Place{}, qdisc.Netem{}
	}
	return nil
}

// device returns what is remembered of a device, locked.
func (e *Engine) device(k key) *device {
	for {
		e.mu.Lock()
		d := e.devices[k]
		if d == nil {
			e.forgetGone()
			d = &device{root: root{table: unknownTable}, detours: map[string]*detour{}}
			e.devices[k] = d
		}
		e.mu.Unlock()
		d.mu.Lock()
		if !d.forgotten {
			return d
		}
		d.mu.Unlock()
	}
}

// forget forgets d, which is locked, where nothing is to be remembered: no fault, and
// neither the counters nor the table of a root of ours.
func (e *Engine) forget(k key, d *device) {
	if len(d.detours) > 0 || d.held() || d.root.table != unknownTable || d.root.tally != (tally{}) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	d.forgotten = true
	if e.devices[k] == d {
		delete(e.devices, k)
	}
}

// forgetGone forgets devices whose namespace is gone, of which nobody may ever ask
// again. It looks each time that there are twice as many as it left. e.mu is held.
func (e *Engine) forgetGone() {
	const least = 16
	if len(e.devices) < max(e.forgetAt, least) {
		return
	}
	maps.DeleteFunc(e.devices, func(k key, d *device) bool {
		if !d.mu.TryLock() { // somebody asks
			return false
		}
		defer d.mu.Unlock()
		if len(d.detours) > 0 {
			return false
		}
		ns, err := namespaces.Open(k.namespace)
		if err == nil {
			_ = ns.Close()
		}
		d.forgotten = errors.Is(err, fs.ErrNotExist)
		return d.forgotten
	})
	e.forgetAt = 2 * len(e.devices)
}
