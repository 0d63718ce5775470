package netemtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"netemd/internal/agent"
	"netemd/internal/config"
)

// stateDir is where agents in test processes keep their state, each in a folder of its own that
// begins with its process's number: it lives as long as what it describes, to the next boot.
const stateDir = "/run/netemtest"

// What one test process may hold: the agent's own bounds, not those of a service for many.
const (
	mostFaults   = 4096
	mostLabs     = 256
	mostRequests = 64 << 20
)

// endTime bounds the end of a session: faults, labs and services.
const endTime = 2 * time.Minute

// ownAgent is the agent in this process.
type ownAgent struct {
	users       int // sessions; sessionsMu guards it
	socket, dir string
	stop        context.CancelFunc
	served      chan error
	watcher     *watcher
	log         *log
}

// own is that agent, nil when there is none; sessionsMu guards it.
var own *ownAgent

// useOwn is the agent in this process for one more session, which has to leave it. The caller
// holds sessionsMu.
func useOwn(ctx context.Context) (*ownAgent, error) {
	if own == nil {
		o, err := startOwn(ctx)
		if err != nil {
			return nil, err
		}
		own = o
	}
	own.users++
	return own, nil
}

// leave stops the agent with its last session. The caller holds sessionsMu.
func (o *ownAgent) leave(ctx context.Context) error {
	if o.users--; o.users > 0 {
		return nil
	}
	own = nil
	return o.close(ctx)
}

// startOwn makes this process an agent. What dead test processes left is cleared before.
func startOwn(ctx context.Context) (*ownAgent, error) {
	if os.Geteuid() != 0 {
		return nil, errNoAgent
	}
	if err := os.MkdirAll(stateDir, 0o755); err != nil {
		return nil, err
	}
	name, err := newName()
	if err != nil {
		return nil, err
	}
	o := &ownAgent{
		dir:    filepath.Join(stateDir, name),
		served: make(chan error, 1), log: &log{},
	}
	o.socket = filepath.Join(o.dir, "netemd.sock")
	leftovers(ctx, o.log.logger())
	leftLedgers(ctx, stateDir)
	// Before the agent makes anything that would have to be cleared.
	if o.watcher, err = startWatcher(o.dir); err != nil {
		return nil, err
	}
	agent.RaiseProcs()
	a, err := agent.New(ctx, agent.Config{StateDir: o.dir, Settings: ownSettings(), Fresh: true, Log: o.log.logger()})
	if err != nil {
		return nil, errors.Join(err, o.watcher.close())
	}
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	o.stop = stop
	go func() { o.served <- a.Serve(serving) }()
	return o, nil
}

// ownSettings are those of an agent that one process of root's uses alone.
func ownSettings() config.Config {
	c := config.Default()
	c.Socket.Mode = 0o600
	c.Limits.Faults, c.Limits.FaultsPerOwner, c.Limits.Waiting = mostFaults, mostFaults, mostFaults
	c.Limits.Followers, c.Limits.Labs, c.Limits.RequestBytes = mostFaults, mostLabs, mostRequests
	return c
}

// close stops the agent, which clears everything, and then the watcher. What could not be
// cleared is left to the watcher.
func (o *ownAgent) close(ctx context.Context) error {
	o.stop()
	var err error
	select {
	case err = <-o.served:
	case <-ctx.Done():
		err = fmt.Errorf("the agent in this process: %w", context.Cause(ctx))
	}
	if err != nil {
		return errors.Join(err, o.watcher.abandon())
	}
	_ = os.Remove(stateDir) // not empty: another process's
	return o.watcher.close()
}

// prepare is called before each fault: go test -cpu sets the number of processors back.
func (*ownAgent) prepare() { agent.RaiseProcs() }

// leftovers clears what agents of dead test processes left whose watchers were killed, too. A
// folder whose process lives is nobody's to clear, nor one that is locked.
func leftovers(ctx context.Context, log *slog.Logger) {
	entries, err := os.ReadDir(stateDir)
	if err != nil {
		log.Warn("leftovers of earlier tests", "err", err)
		return
	}
	for _, e := range entries {
		if !e.IsDir() || !dead(e.Name()) {
			continue
		}
		if err := cleanUp(ctx, filepath.Join(stateDir, e.Name()), log); err != nil {
			log.Warn("leftovers of an earlier test", "folder", e.Name(), "err", err)
		}
	}
}

// cleanUp removes what the dead agent with that folder left, and the folder.
func cleanUp(ctx context.Context, dir string, log *slog.Logger) error {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil // it never began, or somebody else was faster
	}
	settings := ownSettings()
	settings.StateDir = dir
	removed, err := agent.Cleanup(ctx, agent.Config{StateDir: dir, Settings: settings, Fresh: true, Log: log})
	for _, r := range removed {
		log.Info("removed", "what", r)
	}
	return err
}
