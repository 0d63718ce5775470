package netem

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"netemd/internal/target"
)

// Whoever finds the clsact of a device locked waits, and goes on with a warning; once it
// is free it is had at once and in silence.
func TestLockedDoor(t *testing.T) {
	b := newBench(t)
	e := detourEngine(t, b.near)
	var said bytes.Buffer
	e.log = slog.New(slog.NewTextHandler(&said, nil))
	c, err := e.connect(b.foreign(target.Egress))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	l := link{index: b.foreign(target.Egress).Index, name: "near"}
	const wait = 50 * time.Millisecond
	lock := func() (unlock func(), took time.Duration) {
		t.Helper()
		start := time.Now()
		unlock, err := c.lockDoor(l, wait)
		if err != nil {
			t.Fatal(err)
		}
		return unlock, time.Since(start)
	}
	unlock, _ := lock()
	if said.Len() > 0 {
		t.Errorf("a free one: %s", said.String())
	}
	second, took := lock()
	if s := said.String(); took < wait || !strings.Contains(s, "device=near") || !strings.Contains(s, "its fault is lost") || !strings.Contains(s, b.near) {
		t.Errorf("a locked one was had after %s; it said %q", took, s)
	}
	second() // it had none
	unlock()
	said.Reset()
	third, _ := lock()
	defer third()
	if said.Len() > 0 {
		t.Errorf("one that is free again: %s", said.String())
	}
}
