package lab

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"netemd/internal/lab/service"
)

// record is what is known of a lab on disk. It is written before the lab's first
// namespace is made and removed after its last trace is gone, so that whatever
// crashes between can be cleaned from it.
type record struct {
	SchemaVersion int        `json:"schemaVersion"`
	BootID        string     `json:"boot_id"`
	Definition    Definition `json:"definition"`
	// By is who asked for it.
	By Identity `json:"by"`
	// Complete says that the lab was up.
	Complete bool `json:"complete"`
	// Held says that it is there for clients of the process that made it.
	Held     bool            `json:"held,omitempty"`
	Up       time.Time       `json:"up"`
	Services []serviceRecord `json:"services"`
	// Sysctls are what was read back. Most nodes have the same.
	Sysctls []sysctlRecord `json:"sysctls"`
}

// sysctlRecord is what some nodes have in common.
type sysctlRecord struct {
	Nodes  []string `json:"nodes"`
	Values []Sysctl `json:"values"`
}

// keepSysctls writes down what each spot has.
func (r *record) keepSysctls(l *layout, values [][]Sysctl) {
	r.Sysctls = nil
	at := map[string]int{}
	for i, s := range l.spots {
		key := fmt.Sprint(values[i])
		if _, ok := at[key]; !ok {
			at[key] = len(r.Sysctls)
			r.Sysctls = append(r.Sysctls, sysctlRecord{Values: values[i]})
		}
		same := &r.Sysctls[at[key]]
		same.Nodes = append(same.Nodes, s.name)
	}
}

// sysctlsByNode is what was written down, by node.
func (r *record) sysctlsByNode() map[string][]Sysctl {
	all := map[string][]Sysctl{}
	for _, s := range r.Sysctls {
		for _, n := range s.Nodes {
			all[n] = s.Values
		}
	}
	return all
}

// serviceRecord is a service that was started, or is about to.
type serviceRecord struct {
	Node    string         `json:"node"`
	Name    string         `json:"name"`
	Kind    string         `json:"kind"`
	Address netip.AddrPort `json:"address"`
	// Folder is its own in the state folder; Home is where its data is, Log its log file.
	Folder string `json:"folder"`
	Home   string `json:"home"`
	Log    string `json:"log"`
	// Process is its keeper, which takes StopLimit to end it. Without a limit it is the
	// service itself, of an earlier netemd.
	Process   service.Process `json:"process"`
	StopLimit time.Duration   `json:"stop_limit_ns"`
}

// recordVersion is what is written. Version 1 knew wires alone and one subnet for each
// link: its namespaces and processes are named as today's, so that it can be taken down.
const (
	recordVersion    = 2
	oldRecordVersion = 1
)

// dir is where the labs' records and folders are.
func (m *Manager) dir() string { return filepath.Join(m.cfg.StateDir, "labs") }

// labDir is a lab's own folder.
func (m *Manager) labDir(name string) string { return filepath.Join(m.dir(), name) }

func (m *Manager) serviceDir(lab, service string) string {
	return filepath.Join(m.labDir(lab), service)
}

func (m *Manager) recordPath(name string) string { return filepath.Join(m.dir(), name+".json") }

// save writes the record so that a crash leaves the old one or the new one.
func (m *Manager) save(r *record) error {
	text, err := json.Marshal(r)
	m.folder.Lock()
	defer m.folder.Unlock()
	if err == nil {
		err = os.MkdirAll(m.dir(), 0o755)
	}
	if err == nil {
		err = writeFile(m.recordPath(r.Definition.Name), append(text, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("lab record: %w", err)
	}
	return nil
}

// writeFile replaces a file in one step. It does not wait for the disk: what the
// record describes does not outlive the kernel either.
func writeFile(path string, text []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// badRecord is a record that says nothing that can be relied on.
type badRecord struct {
	// name is the lab's by the file's name, and may be of a form that no lab has.
	path, name string
	err        error
}

// records reads all records, by name, the bad ones apart: one must not stand in the
// way of the others.
func (m *Manager) records() (good []*record, bad []badRecord, err error) {
	files, err := os.ReadDir(m.dir())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("lab records: %w", err)
	}
	for _, f := range files {
		name, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue
		}
		path := filepath.Join(m.dir(), f.Name())
		r, err := readRecord(path, name)
		if err == nil {
			for _, s := range r.Services {
				err = errors.Join(err, m.believe(name, s))
			}
		}
		if err != nil {
			bad = append(bad, badRecord{path, name, err})
			continue
		}
		good = append(good, r)
	}
	return good, bad, nil
}

// removeUnfinished removes what a crash in writeFile left. Only who holds the change
// lock may, since it is also what another's save is about to rename.
func (m *Manager) removeUnfinished() error {
	files, err := filepath.Glob(filepath.Join(m.dir(), ".*.json-*"))
	errs := []error{err}
	for _, f := range files {
		errs = append(errs, os.Remove(f))
	}
	return errors.Join(errs...)
}

// readRecord reads a record and refuses one that is not of the lab name, since what
// it says will be deleted.
func readRecord(path, name string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r record
	// What version 1 kept of sysctls had another form.
	var old struct {
		record
		Sysctls json.RawMessage `json:"sysctls"`
	}
	if err := json.Unmarshal(text, &old); err != nil {
		return nil, err
	}
	if r.SchemaVersion = old.SchemaVersion; r.SchemaVersion != oldRecordVersion {
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, err
		}
	}
	if r.SchemaVersion != recordVersion && r.SchemaVersion != oldRecordVersion {
		return nil, fmt.Errorf("version %d, want %d", r.SchemaVersion, recordVersion)
	}
	if r.SchemaVersion == oldRecordVersion {
		r = old.record
	}
	if r.Definition.Name != name {
		return nil, fmt.Errorf("is of lab %q", r.Definition.Name)
	}
	return &r, r.Definition.checkNames()
}

// bootID tells one run of the kernel from the next; process numbers and namespaces of
// an earlier one mean nothing.
func bootID() (string, error) {
	text, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("boot id: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// markPrefix begins the ifalias of lo in every namespace of ours.
const markPrefix = "netemd "

// mark is the ownership mark of a node's namespace: the ifalias of its lo, set before
// the namespace has a name. It says whose it is, to programs and to people.
func (m *Manager) mark(lab, node string) string {
	const maxAlias = 255 // IFALIASZ of linux/if.h, less the closing NUL
	s := fmt.Sprintf("%slab=%s node=%s state=%s", markPrefix, lab, node, m.cfg.StateDir)
	if len(s) > maxAlias {
		s = fmt.Sprintf("%slab=%s node=%s state=sha256:%x", markPrefix, lab, node, sha256.Sum256([]byte(m.cfg.StateDir)))
	}
	return s
}

// owner says in words whose mark it is.
func owner(mark string) string {
	if _, state, ok := strings.Cut(mark, " state="); ok && strings.HasPrefix(mark, markPrefix) {
		return "it belongs to the netemd with the state folder " + state
	}
	return "it is not netemd's"
}
