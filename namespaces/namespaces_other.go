//go:build !linux

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
)

var errOther = fmt.Errorf("network namespaces on %s: %w", runtime.GOOS, errors.ErrUnsupported)

// Create needs Linux.
func Create(string) error { return errOther }

// CreateWith needs Linux.
func CreateWith(string, func() error) error { return errOther }

// Delete needs Linux.
func Delete(string) error { return errOther }

// Prune needs Linux.
func Prune(string) error { return errOther }

// Open needs Linux.
func Open(string) (*Namespace, error) { return nil, errOther }

// List needs Linux.
func List() ([]Entry, error) { return nil, errOther }

// Do needs Linux.
func Do(context.Context, string, func() error) error { return errOther }

// Start needs Linux.
func Start(string, *exec.Cmd) error { return errOther }

// PIDs needs Linux.
func PIDs(string) ([]int, error) { return nil, errOther }

// CreateVeth needs Linux.
func CreateVeth(_, _ VethEnd) error { return errOther }

// Cookie needs Linux.
func (*Namespace) Cookie() (uint64, error) { return 0, errOther }

// Do needs Linux.
func (*Namespace) Do(context.Context, func() error) error { return errOther }

// Start needs Linux.
func (*Namespace) Start(*exec.Cmd) error { return errOther }

// PIDs needs Linux.
func (*Namespace) PIDs() ([]int, error) { return nil, errOther }
