//go:build !linux

package postgres

import (
	"net/netip"
	"testing"
)

func blackHole(*testing.T) netip.AddrPort { panic("needs Linux") }
