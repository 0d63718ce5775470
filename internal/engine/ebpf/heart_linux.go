package ebpf

import (
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// beatEvery is the heartbeat's period: a tenth of what opens the programs, since
// a wake-up can be late by tens of ms on a busy machine.
const beatEvery = 5 * time.Millisecond

// heart tells the programs that this process lives, from a thread of its own.
type heart struct {
	stop atomic.Bool
	done chan struct{}
}

func newHeart(beat *atomic.Uint64) *heart {
	h := &heart{done: make(chan struct{})}
	beat.Store(uint64(now()))
	go func() {
		defer close(h.done)
		// Never unlocked, so that the thread with its priority ends here.
		runtime.LockOSThread()
		prefer()
		period := unix.NsecToTimespec(int64(beatEvery))
		for !h.stop.Load() {
			beat.Store(uint64(now()))
			_ = unix.Nanosleep(&period, nil)
		}
	}()
	return h
}

// close ends the thread; after it the programs open within 50 ms.
func (h *heart) close() {
	h.stop.Store(true)
	<-h.done
}

// prefer asks that the calling thread runs as soon as it can and wakes up when it
// says. It is a matter of quality: not being allowed to is fine.
func prefer() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	if unix.SchedSetAttr(0, &unix.SchedAttr{
		Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK,
	}, 0) != nil {
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20)
	}
}
