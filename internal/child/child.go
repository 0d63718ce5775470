// Package child runs parts of the agent in processes of their own that entered a
// network namespace before they started: what needs more than sockets there, such
// as a proxy or a probe, cannot run on a borrowed thread.
//
// A program that uses it calls Run first of all in main, and a test binary in
// TestMain.
package child

import (
	"fmt"
	"os"
	"sort"
	"strings"
)

// marker is the first argument by which a process knows that it is a child.
const marker = "netemd-child"

// Main is a child's own main. It reads its order from standard input and returns
// the exit code.
type Main func(args []string) int

var mains = map[string]Main{}

// Register names a child's main. It is called from init functions and panics on a
// second use of the name.
func Register(name string, m Main) {
	if _, ok := mains[name]; ok {
		panic("child: " + name + " is registered twice")
	}
	mains[name] = m
}

// Run does not return when this process is a child: it runs the child's main and
// exits with its code, or as soon as the parent has ended if Options.Survive was not
// set.
func Run() {
	if len(os.Args) < 3 || os.Args[1] != marker {
		return
	}
	m, ok := mains[os.Args[2]]
	if !ok {
		names := make([]string, 0, len(mains))
		for n := range mains {
			names = append(names, n)
		}
		sort.Strings(names)
		fmt.Fprintf(os.Stderr, "child: no %q, known: %s\n", os.Args[2], strings.Join(names, ", "))
		os.Exit(2)
	}
	if err := KeepInherited(); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(2)
	}
	if err := becomeUser(); err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(exitUser)
	}
	watchLifeline()
	os.Exit(m(os.Args[3:]))
}

// Args returns the command line, after the program's own name, that starts the
// child name of this very program (/proc/self/exe).
func Args(name string, args ...string) []string {
	return append([]string{marker, name}, args...)
}
