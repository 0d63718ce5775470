package prober

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// priority is the nice value of a child that keeps a schedule. On a machine with ten
// busy processes for each processor, the 99th percentile of what an open loop of 20,000
// calls a second is late is 4 ms with it and 115 ms without.
const priority = -10

// prefer asks for the priority for all threads, of which later ones inherit it. It needs
// CAP_SYS_NICE; without it calls are later, which the lag shows.
func prefer() {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, priority) // the kernel's meaning of a process here is a thread
		}
	}
}
