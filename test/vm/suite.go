//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Suite is one package whose tests run in the guest.
type Suite struct {
	// Package is the folder below the project's root.
	Package string
	// Run limits the tests as -test.run does; empty means all. What a test may
	// leave out for speed it finds by testing.Short or NETEMD_TEST_VM.
	Run string
	// Short says what the short run takes on a kernel, by its series, beside Run: on
	// each only what depends on it. A kernel that is not in it takes all.
	Short map[string]Choice
	// Kernels are the series that it runs on; empty means all.
	Kernels []string
	// Limit ends the package in the short run.
	Limit time.Duration
	// Programs are what the tests run, beside the test program: folders of commands.
	Programs []string
	// Failpoints are those that the tests also run with steps at which they are killed, in
	// the folder "failpoints".
	Failpoints []string
}

// on reports whether the suite runs on k, as the short run chooses or whole.
func (s Suite) on(k Kernel, whole bool) bool {
	if len(s.Kernels) > 0 && !slices.Contains(s.Kernels, k.Series) {
		return false
	}
	c, ok := s.Short[k.Series]
	return whole || !ok || !c.nothing()
}

// slug is the suite's name in file names.
func (s Suite) slug() string { return strings.ReplaceAll(s.Package, "/", "-") }

// Compile builds the suite's test program, and the programs that it runs, into dir.
func (s Suite) Compile(ctx context.Context, root, dir string) error {
	for _, p := range s.Programs {
		if err := goBuild(ctx, root, "build", "-o", dir+"/", "./"+p); err != nil {
			return err
		}
	}
	for _, p := range s.Failpoints {
		if err := goBuild(ctx, root, "build", "-tags", "failpoints", "-o", filepath.Join(dir, "failpoints")+"/", "./"+p); err != nil {
			return err
		}
	}
	prog := filepath.Join(dir, s.slug()+".test")
	if err := goBuild(ctx, root, "test", "-c", "-o", prog, "./"+s.Package); err != nil {
		return err
	}
	if _, err := os.Stat(prog); err != nil {
		return fmt.Errorf("./%s has no tests", s.Package)
	}
	return nil
}

// goBuild runs the go command in root.
func goBuild(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	if cred, ok := invoker(); ok { // or root's files get into the user's build cache
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// The lines by which a suite's output is found; the shell prints them.
const (
	beginMark = "@@netemd-vm begin "
	endMark   = "@@netemd-vm end "
)

// Command is the shell text that runs the compiled suites of dir one after
// another on k, each in its own folder as go test does it: with -test.short, or in full
// and five times as long; what the short run chooses, or whole packages. A suite that fails is run once more: an emulated machine
// can be late by more than any bound of a test, and what fails twice is no such
// delay.
func Command(suites []Suite, k Kernel, root, dir string, long, whole bool) string {
	var b strings.Builder
	short, times := "-test.short", time.Duration(1)
	if long {
		short, times = "-test.short=false", 5
	}
	b.WriteString("uname -r\n")
	for _, s := range suites {
		fmt.Fprintf(&b, "for try in 1 2; do echo; echo '%s%s'; cd %s\n", beginMark, s.Package, quote(filepath.Join(root, s.Package)))
		limit := s.Limit * times
		fmt.Fprintf(&b, "timeout -k 10 %d %s -test.v %s -test.timeout=%s",
			int((limit + 15*time.Second).Seconds()), quote(filepath.Join(dir, s.slug()+".test")), short, limit)
		b.WriteString(s.flags(k, whole))
		fmt.Fprintf(&b, "\nrc=$?; echo; echo '%s%s '$rc; [ $rc = 0 ] && break; done\n", endMark, s.Package)
	}
	return b.String() + "exit 0\n"
}

// flags are those by which the suite's tests are chosen on k.
func (s Suite) flags(k Kernel, whole bool) (flags string) {
	run, skip := s.Run, ""
	if c, ok := s.Short[k.Series]; ok && !whole {
		if len(c.Tests) > 0 {
			run = "^(" + strings.Join(c.Tests, "|") + ")$"
		}
		skip = strings.Join(c.Without, "|")
	}
	if run != "" {
		flags += " -test.run=" + quote(run)
	}
	if skip != "" {
		flags += " -test.skip=" + quote(skip)
	}
	return flags
}

// Outcome is what one suite did in the guest.
type Outcome struct {
	Package               string
	Exit                  int
	Passed, Failed, Skips int
	// Output is everything that the test program said.
	Output string
}

// Err says why the outcome is no success: a failure, or nothing that was run.
func (o Outcome) Err() error {
	switch {
	case o.Exit != 0:
		return fmt.Errorf("exit code %d, %d failed", o.Exit, o.Failed)
	case o.Passed == 0:
		return fmt.Errorf("nothing was run: %d skipped", o.Skips)
	}
	return nil
}

// Outcomes reads the guest's output. A suite that did not come to its end has
// exit code -1.
func Outcomes(output string) []Outcome {
	var found []Outcome
	open := false
	for line := range strings.Lines(output) {
		text := strings.TrimRight(line, "\r\n")
		if name, ok := strings.CutPrefix(text, beginMark); ok {
			found, open = append(found, Outcome{Package: name, Exit: -1}), true
			continue
		}
		if !open {
			continue
		}
		o := &found[len(found)-1]
		if code, ok := strings.CutPrefix(text, endMark+o.Package+" "); ok {
			if n, err := strconv.Atoi(code); err == nil {
				o.Exit = n
			}
			open = false
			continue
		}
		o.Output += line
		switch { // the top level only: a parent that passed may have subtests that did not run
		case strings.HasPrefix(text, "--- PASS:"):
			o.Passed++
		case strings.HasPrefix(text, "--- FAIL:"):
			o.Failed++
		case strings.HasPrefix(text, "--- SKIP:"):
			o.Skips++
		}
	}
	return found
}

// runSuites gives all suites to run, which boots a guest for them and returns what
// it said. A guest that died is booted once more, for the suites that it owes: the
// one under way has then failed once, as Command's own second try has it. What dies
// twice is an error. All that was said is returned.
func runSuites(suites []Suite, run func(left []Suite) (string, error)) (string, error) {
	said, err := run(suites)
	if _, ok := errors.AsType[*DiedError](err); !ok {
		return said, err
	}
	left := unfinished(suites, Outcomes(said))
	if len(left) == 0 {
		return said, err
	}
	more, err := run(left)
	return said + "\n" + more, err
}

// unfinished are the suites that neither passed nor failed twice, in their order.
func unfinished(suites []Suite, outcomes []Outcome) []Suite {
	return slices.DeleteFunc(slices.Clone(suites), func(s Suite) bool {
		tries := s.tries(outcomes)
		return len(tries) > 1 || len(tries) == 1 && tries[0].Exit == 0
	})
}

// tries are the outcomes of the suite.
func (s Suite) tries(outcomes []Outcome) []Outcome {
	return slices.DeleteFunc(slices.Clone(outcomes), func(o Outcome) bool { return o.Package != s.Package })
}

// judge says what the suite came to: what fails twice is an error.
func (s Suite) judge(outcomes []Outcome) (Outcome, error) {
	tries := s.tries(outcomes)
	if len(tries) == 0 {
		return Outcome{}, errors.New("it did not start")
	}
	last := tries[len(tries)-1]
	if err := last.Err(); err != nil || len(tries) < 3 {
		return last, err
	}
	return last, fmt.Errorf("failed %d times before it passed", len(tries)-1)
}

// failures are the lines that name the tests which failed.
func (o Outcome) failures() string {
	var b strings.Builder
	for line := range strings.Lines(o.Output) {
		if strings.Contains(line, "--- FAIL:") {
			b.WriteString(strings.TrimSpace(line) + "; ")
		}
	}
	return b.String()
}
