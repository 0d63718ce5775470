package agent

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/wire"
	"netemd/qdisc"
)

// Several faults are made by one call, all or none, and written down as one.
func TestApplyAll(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	_, c := serveWith(t, Config{Settings: settings(func(c *config.Config) { c.Audit.Path = path })})
	specs := []fault.Spec{
		{Selector: ports(a, target.Port(5000)), Packet: &qdisc.Netem{Loss: 5}, SSHConnection: "192.0.2.1 50000 192.0.2.2 22"},
		{Selector: ports(a, target.Port(5001)), Packet: &qdisc.Netem{Delay: time.Millisecond}, Direction: fault.Both},
		{Selector: ports(a, target.Port(5000)), Packet: &qdisc.Netem{Delay: 2 * time.Millisecond}, RequestID: "mine"},
	}
	faults, err := c.ApplyAll(t.Context(), specs)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.ApplyAll(t.Context(), specs[2:])
	if err != nil || again[0].ID != faults[2].ID {
		t.Errorf("again: %+v, %v", again, err)
	}
	held, err := c.List(t.Context())
	if err != nil || len(held) != 3 {
		t.Fatalf("%d faults are held, %v", len(held), err)
	}
	for i, f := range held {
		if f.ID != faults[i].ID || f.State != fault.Active || f.Spec.Packet.String() != specs[i].Packet.String() || f.Spec.Owner != "uid 0 (root)" {
			t.Errorf("%d: %+v", i, f)
		}
	}
	specs[1].Selector, specs[2].RequestID = ports(a+"x", target.Port(1)), ""
	if _, err := c.ApplyAll(t.Context(), append(specs[1:2:2], specs...)); !errors.Is(err, qdisc.ErrInvalid) || !says(err.Error(), "faults[0].netns") {
		t.Errorf("an unknown namespace: %v", err)
	}
	cleared, err := c.Clear(t.Context(), fault.Selector{All: true})
	if err != nil || len(cleared) != 3 {
		t.Errorf("%d cleared, %v", len(cleared), err)
	}
	got := auditLines(t, path)
	if len(got) != 4 || got[0].Verb != "apply" || len(got[0].Faults) != 3 || got[0].Target != "dev:v0@"+a || says(got[0].Request, "50000") ||
		!says(got[0].Request, "5001", "lossPercent") || got[2].Code != "InvalidArgument" {
		t.Errorf("written down: %+v", got)
	}
}

// Each of several must be allowed; the first that is not is named.
func TestApplyAllIsAllowedWhole(t *testing.T) {
	policy, err := access.New([]access.Rule{{Users: []string{"*"}, Verbs: []access.Verb{access.Apply}, Targets: []string{"pg", "dev:v0@blue"}}})
	if err != nil {
		t.Fatal(err)
	}
	a := bare(t, policy)
	begin := func(targets ...string) (*call, error) {
		var specs []fault.Spec
		for _, name := range targets {
			s := fault.Spec{Target: name, Packet: &qdisc.Netem{Loss: 1}}
			if name == "v0" || name == "v1" {
				s.Target, s.Selector = "", &target.Selector{Namespace: "blue", Device: name}
			}
			specs = append(specs, s)
		}
		c := &call{method: api + "Faults/ApplyAll", known: true, peer: peerInfo{uid: 1000, gid: 1000, owner: "uid 1000"}}
		c.verb, c.listed = verbOf(c.method)
		return c, a.begin(t.Context(), c, wire.ApplyAllRequest(specs))
	}
	if c, err := begin("pg", "v0", "pg"); err != nil || c.target != "pg, dev:v0@blue" {
		t.Errorf("%v, aimed at %q", err, c.target)
	}
	for words, targets := range map[string][]string{"faults[1]: ": {"pg", "v1", "other"}, "faults[2]: ": {"v0", "pg", "other", "v1"}} {
		if c, err := begin(targets...); !errors.Is(err, fault.ErrDenied) || !says(err.Error(), words) || c.allowed {
			t.Errorf("%v: %v", targets, err)
		}
	}
	c := &call{method: api + "Faults/ApplyAll", known: true, peer: peerInfo{uid: 1000, owner: "uid 1000"}}
	c.verb, c.listed = verbOf(c.method)
	bad := &netemv1.ApplyAllRequest{Faults: []*netemv1.ApplyRequest{{}, {Spec: &netemv1.FaultSpec{Target: "../x"}}}}
	if err := a.begin(t.Context(), c, bad); !errors.Is(err, qdisc.ErrInvalid) || !says(err.Error(), "faults[1].target") {
		t.Errorf("a bad name: %v", err)
	}
}
