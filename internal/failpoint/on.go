//go:build failpoints

package failpoint

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// Enabled says whether this program has failpoints.
const Enabled = true

// where and left are what Env said: the step, and how often it is still to be passed.
var (
	where string
	left  atomic.Int64
)

func init() {
	text := os.Getenv(Env)
	if text == "" {
		return
	}
	name, times, counted := strings.Cut(text, ":")
	n := 1
	if counted {
		var err error
		if n, err = strconv.Atoi(times); err != nil || n < 1 {
			fail(fmt.Sprintf("%q: want NAME or NAME:N with N from 1", text))
		}
	}
	if !slices.Contains(names, name) {
		fail(fmt.Sprintf("%q: there are: %s", name, strings.Join(Names(), ", ")))
	}
	where = name
	left.Store(int64(n))
}

// fail ends a program that was told a step which it does not have: a test that is never
// killed would prove nothing.
func fail(what string) {
	fmt.Fprintf(os.Stderr, "%s=%s\n", Env, what)
	os.Exit(2)
}

// At kills the process with SIGKILL when Env names this step. It panics for a name that
// Names does not have.
func At(name string) {
	if name != where {
		if !slices.Contains(names, name) {
			panic("failpoint: " + name + " is not in Names")
		}
		return
	}
	if left.Add(-1) != 0 {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal comes at once, but maybe to another thread
}
