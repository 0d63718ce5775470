package service

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
)

// tailSize is how much of what came last is kept beyond the limit.
const tailSize = 4096

// recorder writes what comes to a log up to a limit and goes on reading after it, so
// that the service neither waits nor fails. What came last is written at the end.
type recorder struct {
	mu   sync.Mutex
	log  io.Writer
	left int64
	// tail is the end of what came, dropped how much of all was not written.
	tail    []byte
	dropped int64
	limit   int64
	// fresh says that the log ends with a newline, or is empty.
	fresh bool
	// quiet keeps the keeper's own lines out of the log.
	quiet bool
}

func newRecorder(log io.Writer, limit int64) *recorder {
	return &recorder{log: log, left: limit, limit: limit, fresh: true}
}

// Write never fails: a full disk is no reason to stop the service.
func (r *recorder) Write(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(b)
	keep := min(int64(n), r.left)
	if keep > 0 {
		r.put(b[:keep])
		if r.left -= keep; r.left == 0 {
			r.say("stopped recording here, at %d bytes; the service goes on", r.limit)
		}
	}
	r.dropped += int64(n) - keep
	r.tail = append(r.tail, b[max(0, n-tailSize):]...)
	r.tail = append(r.tail[:0], r.tail[max(0, len(r.tail)-tailSize):]...)
	return n, nil
}

func (r *recorder) put(b []byte) {
	if len(b) > 0 {
		_, _ = r.log.Write(b)
		r.fresh = b[len(b)-1] == '\n'
	}
}

// Say writes a line of the keeper's own, however much was written.
func (r *recorder) Say(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.say(format, args...)
}

func (r *recorder) say(format string, args ...any) {
	if r.quiet {
		return
	}
	if !r.fresh {
		r.put([]byte("\n"))
	}
	r.put([]byte("[netemd: " + fmt.Sprintf(format, args...) + "]\n"))
}

// End writes the last of what was left out.
func (r *recorder) End() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped == 0 {
		return
	}
	if r.quiet { // a gap that nothing tells would read as if there were none
		r.dropped = 0
		return
	}
	r.say("%d bytes were not recorded; these are the last:", r.dropped)
	r.put(r.tail[max(0, int64(len(r.tail))-r.dropped):])
	r.dropped = 0
}

// Tail returns the last lines that came.
func (r *recorder) Tail() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return LastLines(r.tail)
}

// LastLines returns the last three lines of what a program said, on one, of 1 KiB at most
// before those characters are written as Go does that would change a terminal: \x1b, \x00.
func LastLines(text []byte) string {
	const lines, most = 3, 1024
	text = text[max(0, len(text)-most):]
	all := strings.Split(strings.TrimFunc(string(text), blank), "\n")
	all = all[max(len(all)-lines, 0):]
	for i := range all {
		all[i] = bounded(plain(all[i]))
	}
	return strings.Join(all, " | ")
}

// blank says what is left out at the ends; a program that says only NULs has said nothing.
func blank(r rune) bool { return unicode.IsSpace(r) || r == 0 }

// plain has nothing in it that a terminal obeys, or that shows other text than there is.
func plain(line string) string {
	var b strings.Builder
	for _, r := range strings.TrimRight(strings.ToValidUTF8(line, "?"), "\r") {
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// bounded is the beginning of a long line, where its meaning is.
func bounded(line string) string {
	const most = 300
	if len(line) <= most {
		return line
	}
	return strings.ToValidUTF8(line[:most], "") + "..."
}
