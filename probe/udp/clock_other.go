//go:build !linux

package udp

// ClockName is 0: probe.Now counts from the start of a process here, so no two share it.
func ClockName() uint32 { return 0 }
