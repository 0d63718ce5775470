package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"netemd/internal/child"
)

// Running is a service that was started by this process.
type Running struct {
	// Keeper is the process to stop: Process.Stop with SIGTERM and Order.StopLimit ends
	// the whole service.
	Keeper Process
	// State is as of when it was ready.
	State State
	// Lifeline is the service's standard input, to be closed when the agent lets go of
	// it; nil unless the order asked for one.
	Lifeline io.Closer
}

// Start starts a service in the namespace and waits until it is ready. The keeper is
// told to started as soon as it is there, so that it can be ended after a crash. On an
// error nothing of the service is left, unless the error says so. It needs root.
func Start(ctx context.Context, namespace string, o Order, started func(Process) error) (*Running, error) {
	order, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var stderr *os.File
	if o.Log == "" {
		if stderr, err = openLog(LogPath(o.Folder, o.Name), 0o640); err != nil {
			return nil, err
		}
		defer func() { _ = stderr.Close() }()
	}
	if err := os.Remove(statePath(o.Folder, o.Name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	p, err := child.Start(namespace, child.Options{Survive: true, Stderr: stderr}, keeperChild)
	if err != nil {
		return nil, err
	}
	states := make(chan State)
	go func() {
		defer close(states)
		for d := json.NewDecoder(p.Stdout); ; {
			var s State
			if d.Decode(&s) != nil {
				break
			}
			states <- s
		}
		_ = p.Wait()
	}()
	r := &Running{}
	fail := func(err error) (*Running, error) {
		go drain(states)
		stop := r.Keeper.StopKeeper(o.StopLimit())
		_ = p.Stdin.Close()
		return nil, errors.Join(err, stop)
	}
	if r.Keeper, err = Identify(p.PID); err == nil {
		err = started(r.Keeper)
	}
	if err == nil {
		_, err = p.Stdin.Write(append(order, '\n'))
	}
	if err != nil {
		return fail(err)
	}
	for {
		select {
		case <-ctx.Done():
			return fail(fmt.Errorf("%w%s", context.Cause(ctx), o.LogTail()))
		case s, ok := <-states:
			switch {
			case !ok:
				return fail(fmt.Errorf("its keeper has ended%s", o.LogTail()))
			case s.Ended != nil:
				return fail(s.failure())
			case s.Ready:
				r.State = s
				if o.Lifeline {
					r.Lifeline = p.Stdin
				} else {
					_ = p.Stdin.Close()
				}
				go drain(states)
				return r, nil
			}
		}
	}
}

func drain(states <-chan State) {
	for range states {
	}
}

// failure says why the service did not become ready.
func (s State) failure() error {
	switch {
	case s.Main.PID == 0 && s.Status == "":
		return errors.New(s.Failure) // it was never started
	case s.Failure != "":
		return fmt.Errorf("%s; it was stopped: %s%s", s.Failure, s.Status, quoted(s.Tail))
	}
	return fmt.Errorf("ended before it was ready: %s%s", s.Status, quoted(s.Tail))
}

// keeperMargin is how much longer than its service a keeper may take to end.
const keeperMargin = 2 * time.Second

// StopKeeper ends a keeper of which the service takes so long at most, by the signal that has
// it end the service first. One that has not ended then is stopped with all that descends from
// it before they are killed together: what a dead keeper's service starts is nobody's, and
// would not be found again. A keeper that has ended is no error.
func (p Process) StopKeeper(limit time.Duration) error {
	err := p.Stop(Step{Signal: sigTerm, Wait: limit + keeperMargin})
	if err == nil || !p.Alive() {
		return nil
	}
	found, err := freeze([]Process{p})
	return errors.Join(err, stopAll(found, Step{Signal: sigKill, Wait: killLimit}))
}

// ReadState returns what the keeper of the service in that folder has told last.
func ReadState(folder, name string) (State, error) {
	text, err := os.ReadFile(statePath(folder, name))
	if err != nil {
		return State{}, err
	}
	var s State
	return s, json.Unmarshal(text, &s)
}

// LogTail returns the last lines of the service's log for an error message, empty when
// there are none. A log of the user's own is not read with the agent's rights.
func (o Order) LogTail() string {
	if o.Log != "" {
		return ""
	}
	f, err := os.Open(LogPath(o.Folder, o.Name))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	const size = 2048
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		_, _ = f.Seek(max(end-size, 0), io.SeekStart)
	}
	text, err := io.ReadAll(io.LimitReader(f, size))
	if err != nil {
		return ""
	}
	return quoted(LastLines(text))
}

func quoted(tail string) string {
	if tail == "" {
		return ""
	}
	return "; its log: " + tail
}
