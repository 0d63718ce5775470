package netemtest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// timeline is what happened to a test's faults and labs. It is safe for concurrent use.
type timeline struct {
	began time.Time
	mu    sync.Mutex
	lines []line
}

func (l *timeline) add(format string, args ...any) {
	l.at(time.Now(), format, args...)
}

func (l *timeline) at(t time.Time, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line{t, fmt.Sprintf(format, args...)})
}

func (l *timeline) all() []line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

// render writes the lines in the order of their times, as offsets from the beginning.
func render(began time.Time, lines []line) string {
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var b strings.Builder
	fmt.Fprintf(&b, "what was active when, from the test's first call of netemtest at %s:", began.Format("15:04:05.000"))
	for _, l := range lines {
		fmt.Fprintf(&b, "\n  %+9.3fs  %s", l.at.Sub(began).Seconds(), l.text)
	}
	return b.String()
}
