package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
)

// tiered has a server that can be set.
const tiered = `
lab: held
nodes:
  a: {services: [{name: web, kind: http-tier, port: 80, settings: {work: 1ms}}]}
  b: {services: [{name: job, command: [sleep, "1000"]}]}
links: [{a: a, b: b}]
`

func heldRequest(name string) labfile.Request {
	return labfile.Request{Name: "held", Text: []byte(tiered), From: labfile.Source{Path: "held.yaml"}, As: name}
}

// another is one more client of the same agent.
func another(t *testing.T, a *Agent) *client.Client {
	t.Helper()
	c, err := client.Open(client.Endpoint{Socket: a.cfg.Socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// holdLab holds a lab; what is lost of it comes by the channel.
func holdLab(t *testing.T, c *client.Client, name string) (*client.LabHold, <-chan error) {
	t.Helper()
	lost := make(chan error, 8)
	h, err := c.HoldLab(t.Context(), heldRequest(name), nil, func(err error) { lost <- err })
	if err != nil {
		t.Fatal(err)
	}
	return h, lost
}

// upNow says whether the lab is up, and whether it is held.
func upNow(t *testing.T, c *client.Client, name string) (up, held bool) {
	t.Helper()
	switch info, _, err := c.Lab(t.Context(), name); {
	case errors.Is(err, lab.ErrUnknown):
		return false, false
	case err != nil:
		t.Fatal(err)
		return false, false
	default:
		return true, info.Held
	}
}

// A lab that is held is there until the last that holds it has gone, however he went.
func TestLabHolders(t *testing.T) {
	agent, c := serveWith(t, Config{})
	name := fmt.Sprintf("nt-held-%d", os.Getpid())
	first := another(t, agent)
	if _, lost := holdLab(t, first, name); len(lost) > 0 {
		t.Error(<-lost)
	}
	second, _ := holdLab(t, c, name)
	if err := first.Close(); err != nil { // as of a process that was killed
		t.Fatal(err)
	}
	eventually(t, "the first holder is gone", func() bool {
		agent.holds.mu.Lock()
		defer agent.holds.mu.Unlock()
		return agent.holds.all[name].clients == 1
	})
	if up, held := upNow(t, c, name); !up || !held {
		t.Errorf("after one of two has gone: up %v, held %v, want both", up, held)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // its end must not keep the lab from being let go
	if err := second.Release(ctx); err != nil {
		t.Error(err)
	}
	gone(t, name)
	if err := second.Release(t.Context()); err != nil {
		t.Errorf("a second release: %v", err)
	}

	third := another(t, agent)
	holdLab(t, third, name)
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the lab goes with the last", func() bool { up, _ := upNow(t, c, name); return !up })
	gone(t, name)
}

// A lab that was up stays, and its server does what the lab says again; one that was held and is
// then asked for by lab up stays, too.
func TestLabStays(t *testing.T) {
	agent, c := serveWith(t, Config{})
	name := fmt.Sprintf("nt-stays-%d", os.Getpid())
	holder := another(t, agent)
	held, lost := holdLab(t, holder, name)
	if _, err := c.LabUp(t.Context(), heldRequest(name), nil); err != nil {
		t.Fatal(err)
	}
	own, err := c.LabServer(t.Context(), name, "web", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	set, err := holder.LabServer(t.Context(), name, "web", []byte("work: 7ms\n"), false)
	if err != nil || set.Settings == own.Settings {
		t.Fatalf("set to %q from %q, %v", set.Settings, own.Settings, err)
	}
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server does what its lab says", func() bool {
		now, err := c.LabServer(t.Context(), name, "web", nil, false)
		return err == nil && now.Settings == own.Settings
	})
	if up, held := upNow(t, c, name); !up || held {
		t.Errorf("after its holder has gone: up %v, held %v, want that it stays", up, held)
	}
	if err := held.Release(t.Context()); err == nil {
		t.Error("released over a connection that was closed, without an error")
	}
	eventually(t, "its holder is told", func() bool { return len(lost) > 0 })

	// What is up is taken as it is, whatever its definition.
	other := heldRequest(name)
	other.Text = []byte(strings.ReplaceAll(tiered, "1ms", "2ms"))
	h, err := c.HoldLab(t.Context(), other, nil, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if up, _ := upNow(t, c, name); !up {
		t.Error("a lab that stays went with its last holder")
	}
	if _, err := c.LabDown(t.Context(), name); err != nil {
		t.Error(err)
	}
}

// Who holds a lab is told when a service ends by itself, and when others take the lab down.
func TestLabHolderIsTold(t *testing.T) {
	agent, c := serveWith(t, Config{})
	name := fmt.Sprintf("nt-told-%d", os.Getpid())
	h, lost := holdLab(t, another(t, agent), name)
	pid := 0
	for _, n := range h.Info().Nodes {
		for _, s := range n.Services {
			if s.Name == "web" {
				pid = s.PID
			}
		}
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	wait := func() error {
		t.Helper()
		select {
		case err := <-lost:
			return err
		case <-time.After(30 * time.Second):
			t.Fatal("nothing was told")
			return nil
		}
	}
	if ended, ok := errors.AsType[*client.ServiceEnded](wait()); !ok || ended.Service.Name != "web" || !strings.Contains(ended.Error(), "killed by SIGKILL") {
		t.Errorf("told %v, want that web was killed", ended)
	}
	if existed, err := c.LabDown(t.Context(), name); err != nil || !existed {
		t.Errorf("down: %v, %v", existed, err)
	}
	if err := wait(); !strings.Contains(err.Error(), "was taken down while it was held") {
		t.Errorf("told %v, want that it was taken down", err)
	}
	if err := h.Release(t.Context()); err == nil {
		t.Error("released after its end without an error")
	}
}

// A making that is broken off is undone before the answer.
func TestLabHoldBrokenOff(t *testing.T) {
	c := serve(t)
	name := fmt.Sprintf("nt-off-%d", os.Getpid())
	r := labfile.Request{Name: "never", Text: []byte(never), From: labfile.Source{Path: "never.yaml"}, As: name}
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	_, err := c.HoldLab(ctx, r, func(step string) {
		if strings.Contains(step, "idle") {
			cancel(stop)
		}
	}, func(error) {})
	if !errors.Is(err, stop) {
		t.Errorf("broken off: %v, want %v", err, stop)
	}
	gone(t, name)
}

// A stop that keeps what stands takes down what clients hold.
func TestHeldLabsAreNotKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	name := fmt.Sprintf("nt-kept-%d", os.Getpid())
	outer := t
	t.Run("kept", func(t *testing.T) {
		agent, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Keep = true })})
		holdLab(t, another(outer, agent), name) // which is there until after the stop
		if _, err := c.LabUp(t.Context(), labfile.Request{Name: "held", Text: []byte("lab: held\nnodes: {x: {}}\n"), As: name + "-x"}, nil); err != nil {
			t.Fatal(err)
		}
	})
	gone(t, name)
	t.Run("next", func(t *testing.T) {
		_, c := serveWith(t, Config{StateDir: dir})
		if up, _ := upNow(t, c, name+"-x"); !up {
			t.Error("a lab that nobody had to hold was not kept")
		}
	})
}
