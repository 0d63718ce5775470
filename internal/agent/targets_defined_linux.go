package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
)

// Limits of the targets that are added: their number, and the bytes of the file that keeps
// them.
const (
	maxAdded      = 256
	maxAddedBytes = 1 << 20
)

// addedName is the file in the state folder; what is written stands beside it until it is
// whole, and a file that cannot be read is kept under the last name.
const (
	addedName = "targets.json"
	addedNew  = "targets.json.new"
	addedBad  = "targets.json.bad"
)

// definitions are the targets that have a name and are no lab's. Those that were added are
// in a file, so that they outlive a kill of the agent, but no boot.
type definitions struct {
	dir string

	mu         sync.Mutex
	configured []target.Definition
	added      []target.Definition
	// holders are who added them, by name.
	holders map[string]holder
}

// addedFile is what the file has.
type addedFile struct {
	SchemaVersion int                 `json:"schemaVersion"`
	BootID        string              `json:"boot_id"`
	Targets       []target.Definition `json:"targets"`
	Holders       map[string]holder   `json:"holders,omitempty"`
}

const addedVersion = 1

// openDefinitions reads what an earlier agent with the state folder kept. A file that cannot
// be read is set aside, and does not keep the agent from starting.
func openDefinitions(dir string, configured []target.Definition, log *slog.Logger) *definitions {
	d := &definitions{dir: dir, configured: configured}
	_ = os.Remove(filepath.Join(dir, addedNew)) // of an agent that was killed while it wrote
	var err error
	if d.added, d.holders, err = readAdded(filepath.Join(dir, addedName)); err != nil {
		aside := filepath.Join(dir, addedBad)
		log.Error("the targets that an earlier agent kept cannot be read, and are set aside", "file", aside,
			"err", errors.Join(err, os.Rename(filepath.Join(dir, addedName), aside)))
	}
	return d
}

func readAdded(path string) ([]target.Definition, map[string]holder, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxAddedBytes+1))
	if err != nil {
		return nil, nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, nil, err
	}
	var file addedFile
	err = json.Unmarshal(text, &file)
	switch {
	case err != nil:
		return nil, nil, err
	case file.SchemaVersion != addedVersion:
		return nil, nil, fmt.Errorf("schemaVersion %d, want %d", file.SchemaVersion, addedVersion)
	case file.BootID != boot:
		return nil, nil, nil
	case len(file.Targets) > maxAdded:
		return nil, nil, fmt.Errorf("%d targets, want at most %d", len(file.Targets), maxAdded)
	}
	for _, t := range file.Targets {
		err = errors.Join(err, checkDefinition(t))
	}
	if err != nil {
		return nil, nil, err
	}
	return file.Targets, file.Holders, nil
}

func checkDefinition(d target.Definition) error {
	err := d.Validate()
	if d.Name == "" {
		err = errors.Join(target.CheckName(d.Name), err)
	}
	return err
}

// bootID names the machine's life.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text)), err
}

// save writes what is to be kept, so that a kill leaves the old or the new. Nothing waits for
// the disk: no boot is outlived. The caller has the lock.
func (d *definitions) save(added []target.Definition, holders map[string]holder) error {
	path, next := filepath.Join(d.dir, addedName), filepath.Join(d.dir, addedNew)
	if len(added) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("targets: %w", err)
		}
		return nil
	}
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("targets: %w", err)
	}
	text, err := json.MarshalIndent(addedFile{addedVersion, boot, added, holders}, "", "  ")
	if err != nil {
		return fmt.Errorf("targets: %w", err)
	}
	if len(text) >= maxAddedBytes {
		return fmt.Errorf("targets: %w: their definitions take more than %d bytes together", fault.ErrBusy, maxAddedBytes)
	}
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("targets: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Close())
	failpoint.At("target.written")
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("targets: %w", errors.Join(err, os.Remove(next)))
	}
	failpoint.At("target.recorded")
	return nil
}

// forget removes what is kept, as a stop does.
func (d *definitions) forget() error {
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.added, d.holders = nil, nil
	return d.save(nil, nil)
}

func called(name string) func(target.Definition) bool {
	return func(d target.Definition) bool { return d.Name == name }
}

// find returns what has the name.
func (d *definitions) find(name string) (target.Definition, target.Origin, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.configured, called(name)); i >= 0 {
		return d.configured[i], target.OriginConfig, true
	}
	if i := slices.IndexFunc(d.added, called(name)); i >= 0 {
		return d.added[i], target.OriginAdded, true
	}
	return target.Definition{}, "", false
}

// defined is a definition and where it comes from.
type defined struct {
	definition target.Definition
	origin     target.Origin
}

func (d *definitions) all() (all []defined) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.configured {
		all = append(all, defined{c, target.OriginConfig})
	}
	for _, c := range d.added {
		all = append(all, defined{c, target.OriginAdded})
	}
	return all
}

func (d *definitions) names() (names []string) {
	for _, o := range d.all() {
		names = append(names, o.definition.Name)
	}
	return names
}

// add keeps a definition. One that is there with the same name is fs.ErrExist, unless it says
// the same.
func (d *definitions) add(t target.Definition, by holder) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.IndexFunc(d.added, called(t.Name)); i >= 0 {
		if old := d.added[i]; old.String() != t.String() || old.Started != t.Started {
			return fault.WithHint(fmt.Errorf("target add: %w", taken(fmt.Sprintf("%s is %s already", t.Name, old))), "netemctl target remove "+t.Name)
		}
		return nil
	}
	if len(d.added) >= maxAdded {
		return fault.WithHint(fmt.Errorf("target add: %w: %d targets were added, which is the most", fault.ErrBusy, len(d.added)), "netemctl target remove NAME")
	}
	added, holders := append(slices.Clone(d.added), t), maps.Clone(d.holders)
	if holders == nil {
		holders = map[string]holder{}
	}
	holders[t.Name] = by
	if err := d.save(added, holders); err != nil {
		return err
	}
	d.added, d.holders = added, holders
	return nil
}

// taken is a name that stands for something else already. It matches fs.ErrExist, whose own words
// speak of a file.
type taken string

func (e taken) Error() string        { return string(e) }
func (e taken) Is(target error) bool { return target == fs.ErrExist }

// remove takes a definition away; it is false for one that is not there.
func (d *definitions) remove(name string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	added := slices.DeleteFunc(slices.Clone(d.added), called(name))
	if len(added) == len(d.added) {
		return false, nil
	}
	holders := maps.Clone(d.holders)
	delete(holders, name)
	if err := d.save(added, holders); err != nil {
		return true, err
	}
	d.added, d.holders = added, holders
	return true, nil
}

// addTarget gives a definition its name. What it stands for must be there: a name that was
// mistyped would else be found out by a fault.
func (a *Agent) addTarget(ctx context.Context, d target.Definition) (target.Target, error) {
	if err := checkDefinition(d); err != nil {
		return target.Target{}, err
	}
	if have, origin, ok := a.definitions.find(d.Name); ok && origin == target.OriginConfig {
		return target.Target{}, fmt.Errorf("target add: %w", taken(fmt.Sprintf("%s is %s by the agent's configuration", d.Name, have)))
	}
	ofLabs, err := a.labs.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	for _, t := range ofLabs { // it would be reached by its lab's name alone
		if t.Name == d.Name {
			return target.Target{}, fmt.Errorf("target add: %w", taken(fmt.Sprintf("lab %s has a target %s", t.Lab, d.Name)))
		}
	}
	if d, err = begun(d); err != nil {
		return target.Target{}, err
	}
	t, err := a.locateNew(ctx, d, target.OriginAdded)
	if err != nil {
		return target.Target{}, err
	}
	return t, a.definitions.add(t.Definition, holderOf(ctx))
}

// removeTarget takes away a name that was added. With faults on it, it is refused, unless they
// are to be cleared first: whoever removes it may not know of them, and afterwards they could
// no longer be called by it.
func (a *Agent) removeTarget(ctx context.Context, name string, force bool) (cleared []fault.Fault, err error) {
	switch _, origin, ok := a.definitions.find(name); {
	case ok && origin == target.OriginConfig:
		return nil, fmt.Errorf("target remove: %s is in the agent's configuration (targets:), which alone can remove it: %w", name, errors.ErrUnsupported)
	case !ok:
		t, err := a.labTarget(ctx, name)
		if err != nil {
			return nil, err
		}
		return nil, fault.WithHint(fmt.Errorf("target remove: %s is of lab %s, and goes with it: %w", name, t.Lab, errors.ErrUnsupported), "netemctl lab down "+t.Lab)
	}
	if err := a.definitions.checkNameOwner(ctx, name); err != nil {
		return nil, err // before what waits
	}
	err = a.leases.RetireIf(ctx, []string{name}, func(on []fault.Fault) error {
		// Now that nothing can come: the name may be another's by now, and have a fault.
		if err := a.definitions.checkNameOwner(ctx, name); err != nil {
			return err
		}
		cleared = on
		return mayRetire(ctx, name, on, force)
	}, func(context.Context) error {
		there, err := a.definitions.remove(name)
		if err == nil && !there {
			err = fmt.Errorf("target remove: %w %q: somebody else has just removed it", target.ErrUnknown, name)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return cleared, nil
}

// mayRetire refuses to take a name away from under faults that are not to end with it.
func mayRetire(ctx context.Context, name string, on []fault.Fault, force bool) error {
	for _, f := range on {
		if who := clearingOwner(ctx); who != "" && f.Spec.Whose() != who {
			return fmt.Errorf("target remove: %w: fault %s on %s belongs to %s", fault.ErrConflict, f.ID, name, f.Spec.Owner)
		}
	}
	if len(on) == 0 || force {
		return nil
	}
	ids := make([]string, len(on))
	for i, f := range on {
		ids[i] = f.ID
	}
	return fault.WithHint(fmt.Errorf("target remove: %w: there are faults on %s: %s", fault.ErrConflict, name, strings.Join(ids, ", ")),
		"clear them (netemctl clear --target "+name+"), or let --force do it")
}
