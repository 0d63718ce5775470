//go:build !linux

package evidence

import (
	"context"
	"errors"
	"net/netip"
)

// Kernel needs Linux.
func Kernel() string { return "" }

// ReadTCP needs Linux.
func ReadTCP(context.Context, string, netip.Addr) (Path, error) {
	return Path{}, errors.ErrUnsupported
}
