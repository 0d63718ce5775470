package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/lab/service"
	"netemd/namespaces"
)

// Down takes a lab away: its services, whatever else runs in its namespaces, its
// namespaces with their devices, and its files. Once it has begun it does not stop
// when ctx ends. existed is false, without an error, when there was no such lab. What
// could not be removed is in the error, and stays known as a broken lab for the next
// attempt.
func (m *Manager) Down(ctx context.Context, name string) (existed bool, err error) {
	return m.downIf(ctx, name, func(*running) bool { return true })
}

// downIf is Down of a lab of which agree says so when nothing else changes it.
func (m *Manager) downIf(ctx context.Context, name string, agree func(*running) bool) (existed bool, err error) {
	if name == everyLab {
		return false, nil
	}
	if err := m.turns.take(ctx, name); err != nil {
		return false, fmt.Errorf("lab down: %s: %w", name, err)
	}
	defer m.turns.leave(name)
	r, err := m.get(name)
	if errors.Is(err, ErrUnknown) || !agree(r) {
		return false, nil
	}
	if err := m.remove(ctx, r); err != nil {
		return true, fmt.Errorf("lab down: %s: %w", name, err)
	}
	return true, nil
}

// remove takes a kept lab down and forgets it, or keeps it as a broken one.
func (m *Manager) remove(ctx context.Context, r *running) error {
	m.setDown(r, errors.New("it is being taken down"))
	if err := m.teardown(ctx, r); err != nil {
		m.setDown(r, broken(err))
		return err
	}
	m.mu.Lock()
	delete(m.labs, r.record.Definition.Name)
	m.mu.Unlock()
	return nil
}

// undo takes down a lab that is not kept, and keeps what could not be, since only a
// lab that is known can be taken down again.
func (m *Manager) undo(ctx context.Context, r *running) error {
	err := m.teardown(ctx, r)
	if err != nil {
		m.setDown(r, broken(err))
		m.keep(r)
	}
	return err
}

// broken says that a lab is there in part.
func broken(err error) error {
	return fmt.Errorf("it is broken, since it could not be taken down: %w", err)
}

// teardownLimit bounds what a removal may take, beside the steps in which processes
// are ended, which have limits of their own.
const teardownLimit = time.Minute

// uninterrupted returns the context of a removal. Half a lab is worse than a late answer,
// so the end of ctx does not end a removal that has begun.
func uninterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), teardownLimit, fmt.Errorf("not gone after %v", teardownLimit))
}

// teardown removes every trace of the lab, going on after an error and after the end
// of ctx; the record goes last, and only if all else has gone.
func (m *Manager) teardown(ctx context.Context, r *running) error {
	ctx, cancel := uninterrupted(ctx)
	defer cancel()
	d := r.record.Definition
	boot, err := bootID()
	errs := []error{err}
	if boot == r.record.BootID {
		errs = append(errs, m.stopServices(r))
	}
	m.mu.Lock()
	r.release()
	m.mu.Unlock()
	if r.layout != nil {
		errs = append(errs, m.unimpair(ctx, r.layout))
	}
	errs = append(errs, m.removeNamespaces(ctx, d))
	for _, s := range r.record.Services {
		errs = append(errs, m.removeHome(d.Name, s))
	}
	errs = append(errs, os.RemoveAll(m.labDir(d.Name)))
	failpoint.At("lab.down.files")
	if err := errors.Join(errs...); err != nil {
		return err
	}
	m.folder.Lock()
	defer m.folder.Unlock()
	if err := os.Remove(m.recordPath(d.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	failpoint.At("lab.down.record")
	_ = os.Remove(m.dir()) // when it is empty
	return nil
}

// tidy removes the labs' folder when it is empty.
func (m *Manager) tidy() {
	m.folder.Lock()
	defer m.folder.Unlock()
	_ = os.Remove(m.dir())
}

// removeNamespaces removes those of a lab's namespaces that are ours.
func (m *Manager) removeNamespaces(ctx context.Context, d Definition) error {
	var (
		mu   sync.Mutex
		mine []string
	)
	nodes := d.spotNames()
	err := all(len(nodes), func(i int) error {
		state, err := m.look(ctx, d, nodes[i])
		switch {
		case err != nil:
			return err
		case state == foreign:
			m.cfg.Log.Warn("left alone: a namespace of a lab's name that is not the lab's", "namespace", d.Namespace(nodes[i]))
		case state == ours:
			mu.Lock()
			defer mu.Unlock()
			mine = append(mine, d.Namespace(nodes[i]))
		}
		return nil
	})
	return errors.Join(err, removeNamespaces(ctx, mine))
}

// removeNamespaces ends what runs in namespaces of ours and deletes them; the name of one
// stays while a process does in it, since it could not be found again.
func removeNamespaces(ctx context.Context, names []string) error {
	left, err := service.StopInside(ctx, names)
	err2 := all(len(names), func(i int) error {
		if left[names[i]] {
			return nil
		}
		err := namespaces.Delete(names[i])
		failpoint.At("lab.down.namespace")
		return err
	})
	return errors.Join(err, err2)
}

// removeHome removes a service's data where it is outside of the lab's folder. A
// record that names something else is not believed.
func (m *Manager) removeHome(lab string, s serviceRecord) error {
	if s.Home == "" || s.Home == m.serviceDir(lab, s.Name) {
		return nil
	}
	if err := m.believe(lab, s); err != nil {
		return err
	}
	return os.RemoveAll(s.Home)
}

// believe checks that the service's data folder may be one that we made.
func (m *Manager) believe(lab string, s serviceRecord) error {
	if s.Home == "" || s.Home == m.serviceDir(lab, s.Name) ||
		filepath.IsAbs(s.Home) && strings.HasPrefix(filepath.Base(s.Home), homePrefix) {
		return nil
	}
	return fmt.Errorf("service %s: its data folder %q is none of ours", s.Name, s.Home)
}

// Adopt takes over the labs of an earlier process with the same state folder. A lab
// that is whole is kept, unless it was held, with its proxies started anew; what is not is taken down. A
// record that cannot be read is logged and left for Cleanup. The error tells what
// could not be taken down; it is kept as a broken lab.
func (m *Manager) Adopt(ctx context.Context) error {
	if err := m.turns.take(ctx, everyLab); err != nil {
		return fmt.Errorf("lab adopt: %w", err)
	}
	defer m.turns.leave(everyLab)
	records, bad, err := m.records()
	errs := []error{err, m.removeUnfinished()}
	for _, b := range bad {
		m.cfg.Log.Warn("left a bad record of a lab alone; netemd cleanup sets it aside", "path", b.path, "error", b.err)
	}
	for _, rec := range records {
		r := &running{record: rec}
		err := m.adopt(ctx, r)
		if err == nil {
			m.keep(r)
			m.cfg.Log.Info("adopted a lab", "lab", rec.Definition.Name)
			continue
		}
		m.cfg.Log.Warn("taking a broken lab down", "lab", rec.Definition.Name, "error", err)
		errs = append(errs, m.undo(ctx, r))
	}
	_, err = m.removeOrphans(ctx)
	errs = append(errs, err)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lab adopt: %w", err)
	}
	return nil
}

// adopt checks that the lab is whole; the error says what is missing.
func (m *Manager) adopt(ctx context.Context, r *running) error {
	d := r.record.Definition
	boot, err := bootID()
	if err != nil {
		return err
	}
	if boot != r.record.BootID {
		return errors.New("it is of an earlier boot")
	}
	if r.record.SchemaVersion != recordVersion {
		return fmt.Errorf("it is of an earlier netemd: its record has version %d, want %d", r.record.SchemaVersion, recordVersion)
	}
	if !r.record.Complete {
		return errors.New("it was never complete")
	}
	if r.record.Held {
		return errors.New("it was held by a client of an earlier netemd, which has ended")
	}
	if r.layout, err = d.layout(); err != nil {
		return err
	}
	if err := m.present(ctx, r.layout); err != nil {
		return err
	}
	if err := m.devices(ctx, r); err != nil {
		return err
	}
	if err := m.adoptServices(ctx, r); err != nil {
		return err
	}
	return m.save(r.record)
}

// present checks that all namespaces of a lab are there.
func (m *Manager) present(ctx context.Context, l *layout) error {
	return each(ctx, len(l.spots), func(ctx context.Context, i int) error {
		state, err := m.look(ctx, l.definition, l.spots[i].name)
		if err != nil {
			return err
		}
		if state != ours {
			return fmt.Errorf("namespace %s is gone", l.definition.Namespace(l.spots[i].name))
		}
		return nil
	})
}

// Cleanup removes all labs of the state folder, whether this process or an earlier
// one made them, and namespaces that bear its mark and are in no record, and needs no agent. It says in words what it removed, goes
// on after an error and returns all; once it has begun it does not stop when ctx ends. A
// record that cannot be read is set aside as <lab>.json.bad when the namespaces that bear our
// mark are gone.
func (m *Manager) Cleanup(ctx context.Context) (removed []string, err error) {
	if err := m.turns.take(ctx, everyLab); err != nil {
		return nil, fmt.Errorf("lab cleanup: %w", err)
	}
	defer m.turns.leave(everyLab)
	var errs []error
	tried := func(name string, err error) {
		if errs = append(errs, err); err == nil {
			removed = append(removed, fmt.Sprintf("lab %s, with its faults and services", name))
		}
	}
	for _, r := range m.all() {
		tried(r.record.Definition.Name, m.remove(ctx, r))
	}
	records, bad, err := m.records()
	errs = append(errs, err, m.removeUnfinished())
	for _, rec := range records {
		if _, err := m.get(rec.Definition.Name); err == nil {
			continue // it was tried above
		}
		tried(rec.Definition.Name, m.teardown(ctx, &running{record: rec}))
	}
	orphans, err := m.removeOrphans(ctx)
	for _, name := range orphans {
		removed = append(removed, fmt.Sprintf("namespace %s, of a lab without a record", name))
	}
	errs = append(errs, err)
	if err == nil {
		for _, b := range bad {
			errs = append(errs, m.setAside(b))
		}
	}
	m.tidy()
	if err := errors.Join(errs...); err != nil {
		return removed, fmt.Errorf("lab cleanup: %w", err)
	}
	return removed, nil
}

// setAside takes a bad record out of the way of the next lab of its name, with the
// lab's folder. The record is kept, since it may tell a person of a data folder
// elsewhere.
func (m *Manager) setAside(b badRecord) error {
	to := b.path + ".bad"
	if err := os.Rename(b.path, to); err != nil {
		return err
	}
	m.cfg.Log.Warn("set a bad record of a lab aside", "path", to, "error", b.err)
	if !nameForm().MatchString(b.name) {
		return nil // no lab's: "..json" would name the state folder
	}
	return os.RemoveAll(m.labDir(b.name))
}

// removeOrphans removes the orphans, and returns those that are gone. It goes on after the end
// of ctx.
func (m *Manager) removeOrphans(ctx context.Context) (removed []string, err error) {
	ctx, cancel := uninterrupted(ctx)
	defer cancel()
	orphans, err := m.orphans(ctx)
	for _, name := range orphans {
		m.cfg.Log.Warn("removing a namespace of ours that belongs to no lab", "namespace", name)
	}
	err = errors.Join(err, removeNamespaces(ctx, orphans))
	for _, name := range orphans {
		if _, there := os.Lstat(filepath.Join(namespaces.Dir, name)); errors.Is(there, os.ErrNotExist) {
			removed = append(removed, name)
		}
	}
	return removed, err
}

// orphans are the names of the namespaces that bear our mark and belong to no lab that this
// process knows: somebody deleted the record, or it is a bad one.
func (m *Manager) orphans(ctx context.Context) ([]string, error) {
	entries, err := namespaces.List()
	kept := map[string]bool{}
	for _, r := range m.all() {
		for _, node := range r.record.Definition.spotNames() {
			kept[r.record.Definition.Namespace(node)] = true
		}
	}
	var orphans []string
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name, "netem-")
		if !ok || e.Stale || kept[e.Name] {
			continue
		}
		if mark, err := readMark(ctx, e.Name); err == nil && m.marked(mark, rest) {
			orphans = append(orphans, e.Name)
		}
	}
	return orphans, err
}

// marked says whether it is our mark for the namespace netem-<rest>. Lab and node may
// both hold a dash, so every cut is tried.
func (m *Manager) marked(mark, rest string) bool {
	for i, c := range rest {
		if c == '-' && mark == m.mark(rest[:i], rest[i+1:]) {
			return true
		}
	}
	return false
}
