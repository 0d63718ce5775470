package suite

import (
	"bytes"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// IsGoTest reports whether a command is 'go test'.
func IsGoTest(argv []string) bool {
	return len(argv) > 1 && filepath.Base(argv[0]) == "go" && argv[1] == "test"
}

// WithJSON is a 'go test' that tells its events, which GoTest reads.
func WithJSON(argv []string) []string {
	if slices.Contains(argv, "-json") || slices.Contains(argv, "--json") {
		return argv
	}
	at := 2
	if len(argv) > 3 && (argv[2] == "-C" || argv[2] == "--C") { // it has to be the first
		at = 4
	} else if len(argv) > 2 && (strings.HasPrefix(argv[2], "-C=") || strings.HasPrefix(argv[2], "--C=")) {
		at = 3
	}
	return slices.Concat(argv[:at], []string{"-json"}, argv[at:])
}

// GoTest takes the events of 'go test -json' (go doc test2json), and writes what the tests
// printed to Out. A line that is no event, such as of a broken build, is written as it is. It is
// not safe for concurrent use.
type GoTest struct {
	Out io.Writer

	line   []byte
	states map[Test]State // by a Test without its state
	failed map[string]bool
	err    error
}

// event is a line of 'go test -json'.
type event struct {
	Action, Package, Test, Output string
}

// maxLine bounds a line that is kept until its end, in bytes; a longer one is written as it is.
const maxLine = 1 << 20

// Write takes a piece of the output. Its error is the one of Out.
func (g *GoTest) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		g.line = append(g.line, line...)
		if !whole && len(g.line) < maxLine {
			break
		}
		if whole {
			g.line = append(g.line, '\n')
		}
		g.take(g.line)
		g.line, b = g.line[:0], rest
	}
	return n, g.err
}

func (g *GoTest) take(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil || e.Action == "" {
		g.print(line)
		return
	}
	key := Test{Group: e.Package, Name: e.Test}
	switch e.Action {
	case "output", "build-output":
		g.print([]byte(e.Output))
	case "run":
		g.state(key, Unfinished)
	case "pass":
		g.state(key, Passed)
	case "fail":
		g.state(key, Failed)
	case "skip":
		g.state(key, Skipped)
	}
}

// state keeps what became of a test, and of a package only that it failed.
func (g *GoTest) state(key Test, s State) {
	if g.states == nil {
		g.states, g.failed = map[Test]State{}, map[string]bool{}
	}
	switch {
	case key.Name != "":
		g.states[key] = s
	case s == Failed:
		g.failed[key.Group] = true
	}
}

func (g *GoTest) print(b []byte) {
	if _, err := g.Out.Write(b); err != nil && g.err == nil {
		g.err = err
	}
}

// Tests are those that ran. A package that failed without a test of its own that did is one.
func (g *GoTest) Tests() (all []Test) {
	if len(g.line) > 0 {
		g.take(g.line)
		g.line = nil
	}
	blamed := map[string]bool{}
	for key, s := range g.states {
		key.State = s
		all = append(all, key)
		blamed[key.Group] = blamed[key.Group] || s.Bad()
	}
	for group := range g.failed {
		if !blamed[group] {
			all = append(all, Test{Group: group, Name: group, State: Failed})
		}
	}
	return sorted(all)
}
