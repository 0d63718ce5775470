package namespaces

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// VethEnd is one end of a veth pair as it shall be.
type VethEnd struct {
	// Namespace is the name of the namespace; empty is the process's own.
	Namespace string
	// Name is the device's, 1 to 15 bytes; see Shorten.
	Name string
	// Addresses are given to it without duplicate address detection.
	Addresses []netip.Prefix
	// NoPrefixRoute keeps the kernel from adding routes for the addresses' prefixes.
	NoPrefixRoute bool
	// HardwareAddress is the kernel's choice when nil.
	HardwareAddress net.HardwareAddr
	// Alias is the device's ifalias, at most 255 bytes; empty sets none.
	Alias string
}

func (e VethEnd) check() error {
	var errs []error
	if err := CheckDevice(e.Name); err != nil {
		errs = append(errs, err)
	}
	if len(e.Alias) > 255 {
		errs = append(errs, fmt.Errorf("alias of %s: want at most 255 bytes", e.Name))
	}
	for _, p := range e.Addresses {
		if !p.IsValid() {
			errs = append(errs, fmt.Errorf("address of %s: want an address with a prefix length, such as 10.77.0.1/24", e.Name))
		}
	}
	return errors.Join(errs...)
}

// CheckDevice refuses what cannot be a network device's name: allowed are 1 to 15
// bytes without '/', ':' and white space, but not "." and ".." (dev_valid_name of the
// kernel's net/core/dev.c).
func CheckDevice(name string) error {
	if name == "" || name == "." || name == ".." || len(name) > MaxDevice || strings.ContainsAny(name, "/:\x00 \t\n\v\f\r\u0085\u00a0") {
		return fmt.Errorf("device name %q: want 1 to %d bytes without '/', ':' and white space", name, MaxDevice)
	}
	return nil
}
