//go:build !linux

package evidence

import (
	"context"
	"errors"
	"net/netip"

	"netemd/probe"
)

// Kernel needs Linux.
func Kernel() string { return "" }

// ReadTCP needs Linux.
func ReadTCP(context.Context, string, netip.Addr) (probe.NamespaceTCP, netip.Addr, error) {
	return probe.NamespaceTCP{}, netip.Addr{}, errors.ErrUnsupported
}
