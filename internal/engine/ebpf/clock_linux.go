package ebpf

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// epoch ties Go's clock to the kernel's: the runtime reads CLOCK_MONOTONIC without
// a system call, but does not tell its value.
var epoch = newEpoch()

type epochAt struct {
	at   time.Time
	mono int64
}

func newEpoch() epochAt {
	var best epochAt
	narrow := time.Duration(math.MaxInt64)
	for range 10 { // one of them is not interrupted
		var ts unix.Timespec
		at := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // every kernel has this clock
		if width := time.Since(at); width < narrow {
			narrow, best = width, epochAt{at.Add(width / 2), ts.Nano()}
		}
	}
	return best
}

// now is CLOCK_MONOTONIC in ns, the clock of bpf_ktime_get_ns. It stands still
// while the machine is suspended.
func now() int64 { return epoch.mono + int64(time.Since(epoch.at)) }

// wallAt is the moment of now() = mono on the wall clock, as that is set now. Both clocks are
// read as one, so that nothing comes in between.
func wallAt(mono int64) time.Time {
	t := time.Now()
	return t.Add(time.Duration(mono - epoch.mono - int64(t.Sub(epoch.at)))).Round(0)
}
