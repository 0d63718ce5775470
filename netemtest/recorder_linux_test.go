package netemtest_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// recorder is a test whose failure is what is tested: it keeps what it is told, and ends as a
// real one does.
type recorder struct {
	testing.TB // what is not said here
	name       string
	limit      time.Duration // until its deadline; 0: none

	mu       sync.Mutex
	failed   bool
	skipped  bool
	said     []string
	cleanups []func()
}

// run runs f as a test of that name, with its cleanups, and returns what became of it.
func run(t *testing.T, name string, f func(t *recorder)) *recorder {
	t.Helper()
	r := &recorder{TB: t, name: name}
	r.do(f)
	return r
}

func (r *recorder) do(f func(t *recorder)) {
	within(func() { f(r) })
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		last := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		within(last)
	}
}

// patiently runs f as the test, and once more or twice where it failed since the engine was
// late, as on a machine that stands still at moments: that is what a user is told, too.
func patiently(t *testing.T, f func(t *recorder)) {
	t.Helper()
	for try := 1; ; try++ {
		r := run(t, fmt.Sprintf("%sTry%d", t.Name(), try), f)
		if !r.Failed() {
			return
		}
		if try == 3 || !strings.Contains(r.text(), "passed unimpaired") && !strings.Contains(r.text(), "the engine was late") {
			t.Error(r.text())
			return
		}
		t.Logf("once more: %s", r.text())
	}
}

// within waits for f on a goroutine of its own, which FailNow ends.
func within(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

func (r *recorder) say(text string, failed, skipped bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, text)
	r.failed, r.skipped = r.failed || failed, r.skipped || skipped
}

func (r *recorder) text() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.said, "\n")
}

// wants fails t unless the test failed, or did not, and said these words.
func (r *recorder) wants(t *testing.T, failed bool, words ...string) {
	t.Helper()
	if r.Failed() != failed || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.text(), w) }) {
		t.Errorf("%s: failed %t, want %t; it said, want %q:\n%s", r.name, r.Failed(), failed, words, r.text())
	}
}

func (r *recorder) Name() string             { return r.name }
func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.TB.Context() }
func (r *recorder) Deadline() (time.Time, bool) {
	return time.Now().Add(r.limit), r.limit > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Skipped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.skipped
}

func (r *recorder) Log(args ...any)              { r.say(fmt.Sprint(args...), false, false) }
func (r *recorder) Logf(f string, args ...any)   { r.say(fmt.Sprintf(f, args...), false, false) }
func (r *recorder) Error(args ...any)            { r.say(fmt.Sprint(args...), true, false) }
func (r *recorder) Errorf(f string, args ...any) { r.say(fmt.Sprintf(f, args...), true, false) }
func (r *recorder) Fail()                        { r.say("", true, false) }
func (r *recorder) FailNow()                     { r.Fail(); runtime.Goexit() }
func (r *recorder) Fatal(args ...any)            { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.Errorf(f, args...); runtime.Goexit() }
func (r *recorder) SkipNow()                     { r.say("", false, true); runtime.Goexit() }
func (r *recorder) Skip(args ...any)             { r.say(fmt.Sprint(args...), false, true); runtime.Goexit() }
func (r *recorder) Skipf(f string, args ...any) {
	r.say(fmt.Sprintf(f, args...), false, true)
	runtime.Goexit()
}
