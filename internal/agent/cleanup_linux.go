package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"netemd/internal/journal"
	"netemd/internal/lab"
)

// cleanupTime bounds what Cleanup may take.
const cleanupTime = time.Minute

// Cleanup removes everything that an agent of this state folder left when it was
// killed, or handed over when it was stopped: faults, labs with their services, and a stale
// socket. It needs root and no agent, and returns what it removed. The error says that an
// agent is alive, or what could not be removed.
func Cleanup(ctx context.Context, cfg Config) (removed []string, err error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("cleanup needs root to change the network: %w", os.ErrPermission)
	}
	cfg, err = cfg.normalize()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cleanupTime, errors.New("cleanup took too long"))
	defer cancel()
	a := &Agent{cfg: cfg}
	if auditing := a.openAudit(); auditing != nil { // clean all the same
		defer func() { err = errors.Join(err, auditing) }()
	}
	defer func() {
		a.recordRemoved("removed", removed, err)
		err = errors.Join(err, a.audit.Close())
	}()
	if _, err := os.Stat(cfg.StateDir); errors.Is(err, os.ErrNotExist) {
		labs, err := lab.New(lab.Config{StateDir: cfg.StateDir, Log: cfg.Log})
		if err != nil {
			return nil, err
		}
		orphans, err := cleanLabs(ctx, labs)
		swept, sweeping := sweep(ctx, cfg.StateDir, newOffloads(cfg), nil, true)
		return append(orphans, swept...), errors.Join(err, sweeping)
	}
	lock, err := lockStateDir(cfg.StateDir)
	if err != nil {
		return nil, err
	}
	labs, err := lab.New(lab.Config{StateDir: cfg.StateDir, Log: cfg.Log})
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	j, last, unread := openLast(cfg.StateDir)
	removed = append(damagedInWords(last), openInWords(last.Open)...)
	removed = append(removed, inWords("kept", last.Kept)...)
	defined := openDefinitions(cfg.StateDir, nil, cfg.Log)
	for _, o := range defined.all() {
		removed = append(removed, fmt.Sprintf("target %s, %s", o.definition.Name, o.definition))
	}
	if st, err := os.Lstat(cfg.Socket); err == nil && st.Mode().Type() == os.ModeSocket {
		removed = append(removed, "socket "+cfg.Socket)
	}
	// The journal of a folder that was new says all, if it can be read.
	everywhere := !cfg.Fresh || unread != nil || last.Torn+last.Damaged > 0
	ofLabs, err := cleanLabs(ctx, labs)
	removed = append(removed, ofLabs...)
	errs := []error{unread, err, defined.forget()}
	swept, err := sweep(ctx, cfg.StateDir, newOffloads(cfg), last.Open, everywhere)
	ofProxies, sweeping := sweepToxiproxies(ctx, cfg, last.Open)
	swept, err = append(swept, ofProxies...), errors.Join(err, sweeping)
	errs = append(errs, err, removeSocket(cfg.Socket), forget(j, errors.Join(append(errs, err)...)), removeStateDir(cfg, lock))
	return append(removed, swept...), errors.Join(errs...)
}

// cleanLabs takes all labs of a state folder away, and lets go of them.
func cleanLabs(ctx context.Context, labs *lab.Manager) (removed []string, err error) {
	removed, err = labs.Cleanup(ctx)
	return removed, errors.Join(err, labs.Close())
}

// openLast reads the journal, where there is one.
func openLast(dir string) (*journal.Journal, journal.Last, error) {
	if _, err := os.Lstat(dir + "/" + journal.Name); errors.Is(err, fs.ErrNotExist) {
		return nil, journal.Last{}, nil
	}
	return journal.Open(dir)
}

// forget removes the journal when all that it says was undone.
func forget(j *journal.Journal, undone error) error {
	switch {
	case j == nil:
		return nil
	case undone != nil:
		return j.Close()
	}
	return j.Remove()
}
