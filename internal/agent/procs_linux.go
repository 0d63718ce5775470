package agent

import "runtime"

// minProcs is how many goroutines may run at once at least. The threads that beat
// the engine's heart and move its packets must find a free one as soon as they wake,
// on a machine with two CPUs too: without it a busy agent is late by 10 ms and more.
const minProcs = 8

// RaiseProcs lets as many goroutines run at once as an agent in this process needs, if it is
// not so already. It is for the whole process; the world stops for a moment when it changes.
func RaiseProcs() {
	if want := max(minProcs, runtime.NumCPU()+4); runtime.GOMAXPROCS(0) < want {
		runtime.GOMAXPROCS(want)
	}
}
