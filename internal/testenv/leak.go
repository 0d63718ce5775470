package testenv

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main is the TestMain of a package that holds resources: it runs the tests and
// fails the package when they left goroutines, descriptors or named network
// namespaces. A package whose tests start children calls child.Run before it.
// ignore excuses goroutines that a library never ends.
func Main(m *testing.M, ignore ...goleak.Option) { os.Exit(Run(m, ignore...)) }

// Run is Main for who has something to do behind it, or before the search, in a Run of his own:
// it returns what to exit with.
func Run(m interface{ Run() int }, ignore ...goleak.Option) (code int) {
	before := snapshot()
	if code = m.Run(); code == 0 { // a failed test has said enough
		if err := before.leaks(ignore); err != nil {
			fmt.Fprintf(os.Stderr, "the tests left something behind:\n%v\n", err)
			code = 1
		}
	}
	return code
}

// patience is how long what was closed last may take to be gone.
const patience = 2 * time.Second

type resources struct {
	descriptors map[string]int
	namespaces  map[string]bool
}

func snapshot() resources {
	return resources{descriptors: descriptors(), namespaces: named()}
}

// leaks says what is there now and was not there when r was taken.
func (r resources) leaks(ignore []goleak.Option) error {
	var errs []error
	if err := goleak.Find(append(ignore, goleak.IgnoreAnyFunction(watcher))...); err != nil {
		errs = append(errs, err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		runtime.GC() // finalizers close what has no other end
		now := snapshot()
		found := now.since(r)
		if len(found) == 0 {
			break
		}
		if time.Now().After(end) {
			errs = append(errs, found...)
			break
		}
	}
	return errors.Join(errs...)
}

// since lists what r has and before had not.
func (r resources) since(before resources) []error {
	var found []error
	for d, n := range r.descriptors {
		if more := n - before.descriptors[d]; more > 0 {
			found = append(found, fmt.Errorf("%d more open descriptors of %s", more, d))
		}
	}
	for name := range r.namespaces {
		if !before.namespaces[name] {
			found = append(found, fmt.Errorf("network namespace %s", name))
		}
	}
	return found
}

// descriptors counts this process's open files by what they are; numbers in
// brackets, such as a socket's inode, are left out. What the Go runtime opens at
// the first use of its poller is no leak.
func descriptors() map[string]int {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // not Linux
	}
	found := map[string]int{}
	for _, e := range entries {
		to, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil || to == "anon_inode:[eventpoll]" || to == "anon_inode:[eventfd]" {
			continue // the first: the descriptor that listed the folder
		}
		if kind, _, ok := strings.Cut(to, ":["); ok && kind != "anon_inode" {
			to = kind
		}
		found[to]++
	}
	return found
}

// namesDir is namespaces.Dir, of a package whose tests import this one.
const namesDir = "/run/netns"

// named lists the named network namespaces that are this process's by the
// pid in their name, or, where the run was promised root and no other package's
// tests run beside it, by our prefixes.
func named() map[string]bool {
	entries, err := os.ReadDir(namesDir)
	if err != nil {
		return nil
	}
	pid := "-" + strconv.Itoa(os.Getpid())
	alone := os.Getenv("NETEMD_TEST_ROOT") != ""
	found := map[string]bool{}
	for _, e := range entries {
		name := e.Name()
		if strings.Contains(name+"-", pid+"-") || alone && (strings.HasPrefix(name, "nt-") || strings.HasPrefix(name, "netem-")) {
			found[name] = true
		}
	}
	return found
}
