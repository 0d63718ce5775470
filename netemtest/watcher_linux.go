package netemtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"netemd/internal/child"
)

// The children of a test process that are not the agent's own.
const (
	watcherChild = "netemtest-watcher"
	execChild    = "netemtest-exec"
)

func registerChildren() {
	child.Register(watcherChild, watch)
	child.Register(execChild, execute)
}

// watcher is the process that clears what this one leaves when it ends without saying so.
type watcher struct{ process *child.Process }

// farewell is what the watcher is told when there is nothing to clear.
const farewell = "done\n"

// startWatcher starts it, for a ledger or an agent's folder. Its standard input is a pipe that ends with this process, however
// that ends. It has a session of its own, so that no terminal's signal meets it, and none of
// this process's files: go test waits for the end of whoever has its output.
func startWatcher(path string) (*watcher, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	p, err := child.Start("", child.Options{Survive: true, Stdout: null, Stderr: null}, watcherChild, path)
	if err != nil {
		return nil, err
	}
	return &watcher{p}, nil
}

// close ends the watcher, which has nothing to do.
func (w *watcher) close() error {
	if _, err := w.process.Stdin.Write([]byte(farewell)); err != nil {
		return fmt.Errorf("watcher: %w", err)
	}
	return w.process.Wait()
}

// abandon has the watcher clear, although this process lives.
func (w *watcher) abandon() error {
	_ = w.process.Stdin.Close()
	return w.process.Wait()
}

// How long the watcher tries: the lock of a process that ends goes a moment after its pipes,
// and what is busy meanwhile is tried again.
const (
	watchTries = 10
	watchPause = 300 * time.Millisecond
	watchLog   = "watcher.log"
)

// watch is the watcher's main.
func watch(args []string) int {
	if len(args) != 1 {
		return 2
	}
	path := args[0]
	if line, err := bufio.NewReader(os.Stdin).ReadString('\n'); err == nil && line == farewell {
		return 0
	}
	// What it says is of interest only when something stays, and then the folder does.
	log := slog.New(slog.DiscardHandler)
	var err error
	for range watchTries {
		ctx, cancel := context.WithTimeoutCause(context.Background(), endTime, errors.New("clearing took too long"))
		err = clearAway(ctx, path, log)
		cancel()
		if err == nil {
			_ = os.Remove(stateDir)
			return 0
		}
		time.Sleep(watchPause)
	}
	if !strings.HasSuffix(path, ledgerSuffix) {
		_ = os.WriteFile(filepath.Join(path, watchLog), []byte(err.Error()+"\n"), 0o600)
	}
	return 1
}

// execute is a command's main before it is one: this process is in the command's namespace
// already, or enters it, and becomes the command.
func execute(args []string) int {
	if len(args) < 3 {
		return 2
	}
	namespace, path, argv := args[0], args[1], args[2:]
	err := enter(namespace)
	if err == nil {
		err = &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, argv, os.Environ())}
	}
	fmt.Fprintln(os.Stderr, "netemtest:", err)
	return 127
}
