package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"netemd/internal/client"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/namespaces"
)

// never is a lab that does not come up by itself: its service is never ready.
const never = `
lab: never
nodes:
  a: {services: [{name: idle, command: [sleep, "1000"], ready: {http: "http://127.0.0.1:1/"}, ready_timeout: 10m}]}
  b: {}
links: [{a: a, b: b}]
`

// begin begins to make the lab and returns when its service is being waited for; ended
// gets the error.
func begin(ctx context.Context, t *testing.T, c *client.Client, name string) (ended <-chan error) {
	t.Helper()
	begun, errs := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		r := labfile.Request{Name: "never", Text: []byte(never), From: labfile.Source{Path: "never.yaml"}, As: name}
		_, err := c.LabUp(ctx, r, func(step string) {
			if strings.Contains(step, "idle") {
				begun <- struct{}{}
			}
		})
		errs <- err
	}()
	select {
	case <-begun:
	case err := <-errs:
		t.Fatalf("the lab's making ended early: %v", err)
	}
	return errs
}

// gone checks that nothing of the lab is left at this moment.
func gone(t *testing.T, name string) {
	t.Helper()
	for _, node := range []string{"a", "b"} {
		err := namespaces.Do(t.Context(), "netem-"+name+"-"+node, func() error { return nil })
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("node %s afterwards: %v, want that it is gone", node, err)
		}
	}
}

// A lab that is being made is taken down too: the making is broken off and undone before the
// answer, which says that there was one.
func TestDownWhileUp(t *testing.T) {
	c := serve(t)
	name := fmt.Sprintf("nt-agent-down-%d", os.Getpid())
	ended := begin(t.Context(), t, c, name)
	existed, err := c.LabDown(t.Context(), name)
	if err != nil || !existed {
		t.Errorf("down while it comes up: %v, %v, want true", existed, err)
	}
	gone(t, name)
	if err := <-ended; !errors.Is(err, lab.ErrConflict) || !strings.Contains(err.Error(), "taken down while it was being made") {
		t.Errorf("the making ended with %v, want a conflict that says who ended it", err)
	}
	if existed, err := c.LabDown(t.Context(), name); err != nil || existed {
		t.Errorf("down once more: %v, %v, want false", existed, err)
	}
}

// Who breaks off the making of a lab is answered when it is undone.
func TestBrokenOff(t *testing.T) {
	c := serve(t)
	name := fmt.Sprintf("nt-agent-off-%d", os.Getpid())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := begin(ctx, t, c, name)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "is there") {
		t.Errorf("the making ended with %v", err)
	}
	gone(t, name)
}
