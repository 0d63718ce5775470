package lease

import "golang.org/x/sys/unix"

// monotonic is CLOCK_MONOTONIC in ns.
func monotonic() int64 {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) != nil {
		return 0 // it never fails
	}
	return t.Nano()
}
