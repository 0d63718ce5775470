package ebpf

import (
	"time"

	"golang.org/x/sys/unix"
)

// graceWithout is how long grace waits where it cannot ask: packets run through a program
// in some us, and nothing of this process can run on their processor meanwhile.
const graceWithout = 20 * time.Millisecond

// grace returns when every program that was judging a packet at the call has ended, and
// the packet is where the program sent it: programs and redirects run within one section
// of RCU, whose end membarrier(2) waits for (sys_membarrier in kernel/sched/membarrier.c,
// MEMBARRIER_CMD_GLOBAL; not with nohz_full). It takes some 10 ms.
func grace() {
	const global = 1 // MEMBARRIER_CMD_GLOBAL of linux/membarrier.h
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, global, 0, 0); errno != 0 {
		time.Sleep(graceWithout)
	}
}
