package cli

import (
	"fmt"
	"io"
	"strings"
)

// stepProgress tells the steps of what takes a while on standard error: on a terminal in one
// line that changes, elsewhere a line for each.
type stepProgress struct {
	w        io.Writer
	terminal bool
	shown    bool
}

func (a *app) stepProgress() *stepProgress {
	return &stepProgress{w: a.env.Stderr, terminal: a.env.StderrTerminal && a.env.Getenv("TERM") != "dumb"}
}

// eraseLine begins a terminal's line anew.
const eraseLine = "\r\x1b[K"

func (p *stepProgress) step(step string) {
	switch {
	case p.terminal:
		if len(step) > drawWidth-1 { // a longer one would go on in the next line, which stays
			step = step[:drawWidth-4] + "..."
		}
		fmt.Fprint(p.w, eraseLine+step)
		p.shown = true
	case strings.Contains(step, " 0/"): // where the counting begins; its end is told
	default:
		fmt.Fprintln(p.w, step)
	}
}

// done leaves nothing of it on a terminal.
func (p *stepProgress) done() {
	if p.shown {
		fmt.Fprint(p.w, eraseLine)
	}
}
