//go:build !linux

package namespaces

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// StartShown needs Linux.
func (*Namespace) StartShown(*exec.Cmd) error { return errOther }

// PIDs needs Linux.
func PIDs(string) ([]int, error) { return nil, errOther }

// CreateVeth needs Linux.
func CreateVeth(_, _ VethEnd) error { return errOther }

// Session needs Linux.
type Session struct{}

// Share needs Linux.
func Share(string) (*Session, error) { return nil, errOther }

// Within needs Linux.
func Within(string, func(*Session) error) error { return errOther }

// Kept needs Linux.
func Kept[T io.Closer](context.Context, *Session, func() (T, error)) (c T, err error) {
	return c, errOther
}

// Spoil does nothing.
func (*Session) Spoil() {}

// Release does nothing.
func (*Session) Release() {}

// Name is empty.
func (*Session) Name() string { return "" }

// FD is none.
func (*Session) FD() int { return -1 }

// Cookie is none.
func (*Session) Cookie() uint64 { return 0 }

// Do needs Linux.
func (*Session) Do(context.Context, func() error) error { return errOther }

// Cookie needs Linux.
func (*Namespace) Cookie() (uint64, error) { return 0, errOther }

// Do needs Linux.
func (*Namespace) Do(context.Context, func() error) error { return errOther }

// Start needs Linux.
func (*Namespace) Start(*exec.Cmd) error { return errOther }

// PIDs needs Linux.
func (*Namespace) PIDs() ([]int, error) { return nil, errOther }
