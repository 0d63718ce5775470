package probe

import "golang.org/x/sys/unix"

// Now is the time on the clock of samples, in ns: CLOCK_MONOTONIC, which the
// kernel's bpf_ktime_get_ns reads too.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC): " + err.Error()) // cannot fail with a valid pointer
	}
	return ts.Nano()
}
