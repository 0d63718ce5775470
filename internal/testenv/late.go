package testenv

import (
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	// lateSleep is the sleep whose end is looked at, latePause the time between two: together
	// they keep a processor busy for 2 % of its time.
	lateSleep = time.Millisecond
	latePause = 4 * time.Millisecond
	// lateFirst is how long the first question takes; later ones are answered at once.
	lateFirst = 200 * time.Millisecond
	// lateSeconds is how long a late end counts: about as long as a test sends packets.
	lateSeconds = 10
	// lateUnit is the lateness that doubles a bound: the worst of an idle machine is well
	// below it, and a test's packet passes few sleeping threads.
	lateUnit = 5 * time.Millisecond
	// lateMost is the largest factor, so that what is broken fails before its package's
	// time is over.
	lateMost = 20
	// lateVM is the smallest factor in an emulated machine, where the instructions
	// themselves are slow, which a sleep does not show.
	lateVM = 5
)

// watch looks how late threads wake up, from the first question to the process's end.
var watch struct {
	start sync.Once
	worst worst
}

// watcher is the name by which the search for leaks leaves it out.
const watcher = "netemd/internal/testenv.watchLateness"

// Lateness is how much longer than asked for the longest sleep of 1 ms of a thread of
// its own was in the last 10 s: what the machine's load adds to a wake-up. The first
// call takes 200 ms. It is safe for concurrent use.
func Lateness() time.Duration {
	watch.start.Do(func() {
		go watchLateness()
		time.Sleep(lateFirst)
	})
	return watch.worst.at(time.Now())
}

// Slower is d, or as much more as a bound that is d on a quiet machine needs on this
// one by its Lateness: 20 times d at most, and at least 5 times in an emulated machine.
// Two calls may differ: times that have to fit together come from one.
func Slower(d time.Duration) time.Duration {
	return time.Duration(float64(d) * lateFactor(Lateness(), os.Getenv("NETEMD_TEST_VM") != ""))
}

func lateFactor(late time.Duration, vm bool) float64 {
	f := 1 + float64(late)/float64(lateUnit)
	if vm {
		f = max(f, lateVM)
	}
	return min(f, lateMost)
}

func watchLateness() {
	runtime.LockOSThread()
	for ; ; time.Sleep(latePause) {
		start := time.Now()
		time.Sleep(lateSleep)
		end := time.Now()
		watch.worst.add(end, end.Sub(start)-lateSleep)
	}
}

// worst keeps the largest of what was added in each of the last seconds. Its zero value
// is ready, and it is safe for concurrent use.
type worst struct {
	mu      sync.Mutex
	seconds [lateSeconds]struct {
		unix int64
		late time.Duration
	}
}

func (w *worst) add(at time.Time, late time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := &w.seconds[at.Unix()%lateSeconds]
	if s.unix != at.Unix() {
		s.unix, s.late = at.Unix(), 0
	}
	s.late = max(s.late, late)
}

func (w *worst) at(now time.Time) (late time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.seconds {
		if now.Unix()-s.unix < lateSeconds {
			late = max(late, s.late)
		}
	}
	return late
}
