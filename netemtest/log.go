package netemtest

import (
	"log/slog"
	"strings"
	"sync"
	"time"
)

// mostLines is how many lines of its agent a process keeps.
const mostLines = 1000

// log keeps what the agent in this process warned of, for the tests that fail meanwhile.
type log struct {
	mu    sync.Mutex
	lines []line
}

type line struct {
	at   time.Time
	text string
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelWarn, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{} // the timeline has a better one
		}
		return a
	}}))
}

// Write takes one record, as slog's handlers write them.
func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.lines) >= mostLines {
		l.lines = append(l.lines[:0], l.lines[mostLines/2:]...)
	}
	l.lines = append(l.lines, line{time.Now(), strings.TrimSpace(string(b))})
	return len(b), nil
}

// since are the lines from a time on.
func (l *log) since(t time.Time) (found []line) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.lines {
		if !o.at.Before(t) {
			found = append(found, o)
		}
	}
	return found
}
