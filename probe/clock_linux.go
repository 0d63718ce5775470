package probe

import "golang.org/x/sys/unix"

// monotonicNS is CLOCK_MONOTONIC, which bpf_ktime_get_ns reads too.
func monotonicNS() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC): " + err.Error()) // cannot fail with a valid pointer
	}
	return ts.Nano()
}
