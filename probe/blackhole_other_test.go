//go:build !linux

package probe

import (
	"net/netip"
	"testing"
)

func blackHole(*testing.T) netip.AddrPort { panic("needs Linux") }
