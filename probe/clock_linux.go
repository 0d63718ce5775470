package probe

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// zero is a time of Go's clock, and offset what CLOCK_MONOTONIC showed then. Both are the
// kernel's CLOCK_MONOTONIC, so the offset stays; but Go reads it without a system call,
// which takes 5 us on some virtual machines, and a call is timed many times.
var zero = time.Now()
var offset = calibrate()

// Now is the time on the clock of samples, in ns: CLOCK_MONOTONIC, which the
// kernel's bpf_ktime_get_ns reads too. It is that to within the time that one system call
// takes.
func Now() int64 { return offset + int64(time.Since(zero)) }

// calibrate takes the best of some readings: the one between two of Go's that are nearest.
func calibrate() (offset int64) {
	for best, n := time.Duration(math.MaxInt64), 0; n < 16; n++ {
		before := time.Since(zero)
		at := monotonic()
		after := time.Since(zero)
		if after-before < best {
			best, offset = after-before, at-int64(before+(after-before)/2)
		}
	}
	return offset
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("clock_gettime(CLOCK_MONOTONIC): " + err.Error()) // cannot fail with a valid pointer
	}
	return ts.Nano()
}
