package child

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	"netemd/namespaces"
)

// Options says how a child is started.
type Options struct {
	// Survive lets the child live on when this process ends; without it the child
	// ends within a moment, by the end of its lifeline. A surviving child has a
	// session of its own, so that no terminal's signal reaches it.
	Survive bool
	// Stdout, when set, is the child's standard output; else it is Process.Stdout.
	Stdout *os.File
	// Stderr is the child's standard error; nil discards it.
	Stderr *os.File
}

// Process is a running child. Its standard input stays open until it is closed
// here, or this process ends.
type Process struct {
	// PID is the child's process number.
	PID   int
	Stdin io.WriteCloser
	// Stdout is to be read to its end before Wait; nil when Options.Stdout is set.
	Stdout io.ReadCloser

	cmd      *exec.Cmd
	lifeline *os.File
}

// Start starts the child name of this very program (/proc/self/exe) in the network
// namespace; empty is the own one. The child is inside from its first instruction.
// It needs root for a named namespace.
func Start(namespace string, o Options, name string, args ...string) (*Process, error) {
	p, err := start(namespace, o, name, args)
	if err != nil {
		return nil, fmt.Errorf("child start: %s: %w", name, err)
	}
	return p, nil
}

func start(namespace string, o Options, name string, args []string) (p *Process, err error) {
	cmd := &exec.Cmd{
		Path:        "/proc/self/exe",
		Args:        append([]string{os.Args[0]}, Args(name, args...)...),
		Env:         os.Environ(),
		Stdout:      writer(o.Stdout),
		Stderr:      writer(o.Stderr),
		SysProcAttr: &syscall.SysProcAttr{Setsid: o.Survive},
	}
	p = &Process{cmd: cmd}
	var opened []io.Closer
	defer func() {
		if err != nil {
			for _, c := range opened {
				_ = c.Close()
			}
		}
	}()
	if !o.Survive {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer func() { _ = r.Close() }()
		opened = append(opened, w)
		p.lifeline = w
		cmd.ExtraFiles = []*os.File{r} // the first is descriptor 3
		cmd.Env = append(cmd.Env, lifelineVariable+"=3")
	}
	if p.Stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	opened = append(opened, p.Stdin)
	if o.Stdout == nil {
		if p.Stdout, err = cmd.StdoutPipe(); err != nil {
			return nil, err
		}
		opened = append(opened, p.Stdout)
	}
	if namespace == "" {
		err = cmd.Start()
	} else {
		err = namespaces.Start(namespace, cmd)
	}
	if err != nil {
		return nil, err
	}
	p.PID = cmd.Process.Pid
	return p, nil
}

// writer keeps a nil file from becoming a Writer that is not nil.
func writer(f *os.File) io.Writer {
	if f == nil {
		return nil
	}
	return f
}

// Kill ends the child at once. A child that has ended is no error.
func (p *Process) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("child kill: process %d: %w", p.PID, err)
	}
	return nil
}

// Wait waits for the child's end and closes its pipes; Stdout must have been read to
// its end. The error is an *exec.ExitError when the exit code is not 0. Call it once.
func (p *Process) Wait() error {
	err := p.cmd.Wait()
	if p.lifeline != nil {
		_ = p.lifeline.Close()
	}
	_ = p.Stdin.Close()
	return err
}
