//go:build !linux

package child

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Options says how a child is started.
type Options struct {
	Survive        bool
	Stdout, Stderr *os.File
}

// Process is a running child.
type Process struct {
	PID    int
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
}

// Start needs Linux.
func Start(string, Options, string, ...string) (*Process, error) {
	return nil, fmt.Errorf("child start: %w", errors.ErrUnsupported)
}

// Kill needs Linux.
func (*Process) Kill() error { return errors.ErrUnsupported }

// Wait needs Linux.
func (*Process) Wait() error { return errors.ErrUnsupported }
