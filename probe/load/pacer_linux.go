package load

import (
	"context"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"netemd/probe"
)

// nap bounds one sleep in the kernel, so that the end of a run is seen soon.
const nap = 20 * time.Millisecond

// doze is the longest sleep that Go's scheduler is not told of. What it is told of gives
// its place among the running threads away, and had to wait for one again, on a machine
// that is busy with the calls for longer than the sleep. A collection of garbage waits for
// a thread that it does not know to sleep, so that must be short.
const doze = 250 * time.Microsecond

// pacer is the clock of samples with the kernel's timers. Go's wait in epoll, in whole
// milliseconds; a thread of its own in clock_nanosleep is woken within 0.1 ms on an idle
// machine, and on a busy one where it may be a real-time thread (CAP_SYS_NICE).
type pacer struct{}

func (pacer) Now() int64 { return probe.Now() }

// begin gives the calling goroutine a thread of its own, for the rest of its life: a
// thread with other settings must not serve other goroutines.
func (pacer) begin() {
	runtime.LockOSThread()
	// Both are asked for and not needed: without them wake-ups are later, which the lag
	// shows. A thread that it starts does not inherit the class.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	_ = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}, 0)
}

func (pacer) Sleep(ctx context.Context, until int64) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		now := probe.Now()
		if now >= until {
			return true
		}
		ts := unix.NsecToTimespec(min(until, now+int64(nap)))
		if until-now <= int64(doze) {
			_, _, _ = unix.RawSyscall6(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
			continue
		}
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil) // interrupted by a signal it goes round
	}
}
