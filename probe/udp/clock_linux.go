package udp

import (
	"hash/fnv"
	"os"
	"sync"
)

// ClockName names this process's CLOCK_MONOTONIC: the same on one host, since its last
// start, and in one time namespace (which shifts that clock). 0: it has no name.
var ClockName = sync.OnceValue(func() uint32 {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return 0
	}
	shift, _ := os.Readlink("/proc/self/ns/time") // kernels older than 5.6 have no such namespaces
	h := fnv.New32a()
	_, _ = h.Write(boot)
	_, _ = h.Write([]byte(shift))
	return h.Sum32()
})
