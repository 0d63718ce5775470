package netemtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"netemd/internal/client"
	"netemd/internal/lab"
)

// ledgerSuffix ends the names of ledgers, which begin with the process (newName).
const ledgerSuffix = ".labs"

// ledger is a file with the labs that this process has a running agent keep. Faults end there
// with their connection, labs do not: a watcher takes them down when this process ends without
// doing it, and the next test process when the watcher is killed, too. It is guarded by the
// session's ledgerMu.
type ledger struct {
	path    string
	watcher *watcher
	ledgerText
}

// ledgerText is what the file has.
type ledgerText struct {
	Socket string   `json:"socket"`
	Labs   []string `json:"labs"`
}

// ledgerDir is where this user's ledgers are, in memory: they live to the next boot, as labs do.
func ledgerDir() (string, error) {
	if os.Geteuid() == 0 {
		return stateDir, os.MkdirAll(stateDir, 0o755)
	}
	above := os.Getenv("XDG_RUNTIME_DIR")
	if above == "" {
		above = os.TempDir()
	}
	dir := filepath.Join(above, fmt.Sprintf("netemtest-%d", os.Geteuid()))
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir) // above may be a folder in which everybody makes files
	if err != nil {
		return "", err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return "", fmt.Errorf("%s: want a folder that uid %d alone may write to: %w", dir, os.Geteuid(), fs.ErrPermission)
	}
	return dir, nil
}

// openLedger begins one, after what dead test processes left at agents was taken down.
func openLedger(ctx context.Context, socket string) (*ledger, error) {
	dir, err := ledgerDir()
	if err != nil {
		return nil, err
	}
	leftLedgers(ctx, dir)
	name, err := newName()
	if err != nil {
		return nil, err
	}
	l := &ledger{path: filepath.Join(dir, name+ledgerSuffix)}
	if l.Socket = socket; socket != "" {
		if l.Socket, err = filepath.Abs(socket); err != nil {
			return nil, err
		}
	}
	l.watcher, err = startWatcher(l.path)
	return l, err
}

// note records a lab before it is made, strike one that is down or was not made.
func (l *ledger) note(name string) error { return l.write(append(slices.Clone(l.Labs), name)) }

func (l *ledger) strike(name string) error {
	return l.write(slices.DeleteFunc(slices.Clone(l.Labs), func(o string) bool { return o == name }))
}

// write puts the labs into the file, so that a kill leaves the old or the new.
func (l *ledger) write(labs []string) error {
	l.Labs = labs
	if len(labs) == 0 {
		return absent(os.Remove(l.path))
	}
	text, err := json.Marshal(l.ledgerText)
	if err != nil {
		return err
	}
	next := strings.TrimSuffix(l.path, ledgerSuffix) + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, l.path)
}

// close ends the watcher; what is still noted is left to it.
func (l *ledger) close() error {
	if len(l.Labs) > 0 {
		return l.watcher.abandon()
	}
	return l.watcher.close()
}

// leftLedgers takes down what ledgers of dead processes name. What cannot be now is left to
// the next: whose agent does not answer is no business of this test's.
func leftLedgers(ctx context.Context, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if e.IsDir() || !dead(e.Name()) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if !strings.HasSuffix(path, ledgerSuffix) { // killed while it wrote
			_ = os.Remove(path)
			continue
		}
		_ = settle(ctx, path)
	}
}

// settle takes down the labs of a ledger, and removes it.
func settle(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var l ledgerText
	if err := json.Unmarshal(text, &l); err != nil {
		return errors.Join(err, os.Remove(path)) // nobody can read it later either
	}
	c, err := client.Open(client.Endpoint{Socket: l.Socket})
	if errors.Is(err, client.ErrUnreachable) && l.Socket != "" {
		if _, gone := os.Lstat(l.Socket); errors.Is(gone, fs.ErrNotExist) {
			return absent(os.Remove(path)) // the agent has stopped, and its labs with it
		}
	}
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	for _, name := range l.Labs {
		if err := downAndStay(ctx, c, name); err != nil {
			return err
		}
	}
	return absent(os.Remove(path))
}

// How often a lab is looked for once it is down: one that was coming up when its process was
// killed is noticed by the agent a moment later.
const (
	downLooks = 3
	downPause = 200 * time.Millisecond
)

// downAndStay takes a lab down, and sees that it stays so.
func downAndStay(ctx context.Context, c *client.Client, name string) error {
	for quiet := 0; quiet < downLooks; {
		if _, err := c.LabDown(ctx, name); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(downPause):
		}
		switch _, _, err := c.Lab(ctx, name); {
		case errors.Is(err, lab.ErrUnknown):
			quiet++
		case err != nil:
			return err
		default:
			quiet = 0
		}
	}
	return nil
}

func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// clearAway is what a watcher does: for a ledger, or the folder of an agent that was in the
// process.
func clearAway(ctx context.Context, path string, log *slog.Logger) error {
	if strings.HasSuffix(path, ledgerSuffix) {
		return settle(ctx, path)
	}
	return cleanUp(ctx, path, log)
}
