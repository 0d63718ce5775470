package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/lab/labfile"
	"netemd/internal/target"
	"netemd/qdisc"
)

// What somebody else made, a lab, a name or a fault, is not taken away with a name or a lab;
// root and who made it may, after a restart too.
func TestOthersThings(t *testing.T) {
	gid, ok := groupOf(group)
	if !ok {
		t.Fatalf("this host has no group %s", group)
	}
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := reachable(t)
	socket := filepath.Join(dir, "netemd.sock")
	lab := fmt.Sprintf("nt-agent-own-%d", os.Getpid())
	cfg := Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Socket.Group = group })}
	agent, c := serveWith(t, cfg)
	run := func(want int, text string, args ...string) {
		t.Helper()
		if code, said := netemctl(t, nobody, []uint32{uint32(gid)}, append([]string{"--socket", socket}, args...)...); code != want || !says(said, text) {
			t.Errorf("%v: exit code %d, want %d and %q: %s", args, code, want, text, said)
		}
	}
	for _, name := range []string{"ours", "plain"} {
		if _, err := c.AddTarget(t.Context(), target.Definition{Name: name, Device: "v0", Namespace: a}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.LabUp(t.Context(), labfile.Request{Name: lab, Text: []byte("lab: " + lab + "\nnodes: {x: {}}\n")}, nil); err != nil {
		t.Fatal(err)
	}
	of := apply(t, c, fault.Spec{Target: "ours", Packet: &qdisc.Netem{Loss: 1}, TTL: time.Minute})
	run(0, "", "target", "add", "theirs", "--dev", "v1", "--netns", b)
	onTheirs := apply(t, c, fault.Spec{Target: "theirs", Packet: &qdisc.Netem{Loss: 1}, TTL: time.Minute})
	for range 2 {
		run(1, "conflict: ours belongs to uid 0", "target", "remove", "ours", "--force")
		run(1, "conflict: plain belongs to uid 0", "target", "remove", "plain")
		run(1, "conflict: lab "+lab+" belongs to uid 0", "lab", "down", lab)
		if agent == nil {
			break
		}
		run(1, "conflict: fault "+onTheirs.ID+" on theirs belongs to uid 0", "target", "remove", "theirs", "--force")
		if all, err := c.List(t.Context()); err != nil || len(all) != 2 || all[0].ID != of.ID {
			t.Errorf("faults afterwards: %+v, %v", all, err)
		}
		for _, id := range []string{of.ID, onTheirs.ID} {
			if _, err := c.Clear(t.Context(), fault.Selector{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		agent = nil // the names' owners are kept over the next two of its lives
		held, err := readHolders(dir)
		if err != nil || held["theirs"].Words != "uid 65534 (nobody)" || held["ours"].Words != "uid 0 (root)" {
			t.Errorf("kept: %v, %v", held, err)
		}
	}
	run(0, "", "target", "remove", "theirs")
	if _, err := c.RemoveTarget(t.Context(), "ours", false); err != nil {
		t.Error(err)
	}
	run(0, "", "lab", "up", "star", "--as", lab+"2")
	run(0, "", "lab", "down", lab+"2")
	if _, err := c.LabDown(t.Context(), lab); err != nil {
		t.Error(err)
	}
}

func readHolders(dir string) (map[string]holder, error) {
	_, held, err := readAdded(filepath.Join(dir, addedName))
	return held, err
}
