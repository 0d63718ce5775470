package offload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"netemd/internal/fault"
)

// record is what one fault has switched off. It is on disk before the first device is
// changed and until the last is as it was, so that whatever crashes between can be
// undone from it.
type record struct {
	SchemaVersion int    `json:"schemaVersion"`
	BootID        string `json:"boot_id"`
	// ID is the fault's.
	ID      string   `json:"id"`
	Devices []change `json:"devices"`
}

// change is what was switched off at one device.
type change struct {
	// Namespace and Device are where it was found; Cookie (SO_NETNS_COOKIE) and Index
	// are what it is known by.
	Namespace string `json:"namespace"`
	Cookie    uint64 `json:"cookie"`
	Device    string `json:"device"`
	Index     int    `json:"index"`
	// Features were wanted before, and are not while the fault lasts.
	Features []string `json:"features"`
	// Segments is GSOMaxSegs as it was, 0 when it was left as it was.
	Segments uint32 `json:"segments"`
}

// offload is the device of the change.
func (c change) offload() fault.Offload {
	return fault.Offload{Namespace: c.Namespace, Device: c.Device, Cookie: c.Cookie, Index: c.Index}
}

// same reports whether both are the same device.
func (c change) same(o change) bool { return c.Cookie == o.Cookie && c.Index == o.Index }

const (
	recordVersion = 1
	recordSuffix  = ".json"
)

// file is the path of a fault's record. An id is a name and no path.
func (k *Keeper) file(id string) (string, error) {
	if id == "" || strings.ContainsAny(id, "/\x00") || strings.HasPrefix(id, ".") {
		return "", fmt.Errorf("id %q is no file name", id)
	}
	return filepath.Join(k.dir, id+recordSuffix), nil
}

// load reads the record of a fault, nil when there is none.
func (k *Keeper) load(id string) (*record, error) {
	path, err := k.file(id)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("record %s: %w", path, err)
	}
	if r.SchemaVersion != recordVersion || r.ID != id {
		return nil, fmt.Errorf("record %s: of version %d and fault %q: not written by this program", path, r.SchemaVersion, r.ID)
	}
	return &r, nil
}

// all reads every record of this run of the kernel, and drops those of an earlier one,
// whose devices are gone.
func (k *Keeper) all() ([]record, error) {
	files, err := os.ReadDir(k.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	boot, err := bootID()
	if err != nil {
		return nil, err
	}
	var (
		records []record
		errs    []error
	)
	for _, f := range files {
		id, ok := strings.CutSuffix(f.Name(), recordSuffix)
		if !ok || strings.HasPrefix(id, ".") {
			continue // half-written: nothing was changed by it
		}
		r, err := k.load(id)
		switch {
		case err != nil:
			errs = append(errs, err)
		case r != nil && r.BootID != boot:
			errs = append(errs, k.remove(id))
		case r != nil:
			records = append(records, *r)
		}
	}
	return records, errors.Join(errs...)
}

// save writes a record so that a crash leaves the old one or the new one.
func (k *Keeper) save(r record) error {
	path, err := k.file(r.ID)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(k.dir, "."+r.ID+recordSuffix), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return err
	}
	return syncDir(k.dir)
}

// remove removes the record of a fault, and the folder with the last one.
func (k *Keeper) remove(id string) error {
	path, err := k.file(id)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	k.tidy()
	return nil
}

// tidy removes what a crash left half-written, and the folder when it is empty then.
func (k *Keeper) tidy() {
	files, err := os.ReadDir(k.dir)
	if err != nil || slices.ContainsFunc(files, func(f fs.DirEntry) bool { return !strings.HasPrefix(f.Name(), ".") }) {
		return
	}
	for _, f := range files {
		_ = os.Remove(filepath.Join(k.dir, f.Name()))
	}
	_ = os.Remove(k.dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// bootID tells one run of the kernel from the next: cookies and indices are given
// anew in each.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
