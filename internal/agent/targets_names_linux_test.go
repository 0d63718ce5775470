package agent

import (
	"errors"
	"strings"
	"testing"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/target"
	"netemd/namespaces"
)

// A name that was given before a lab with a target of that name came up means neither by
// itself; and a lab's target whose wire somebody removed has vanished.
func TestNamesOfALabThatCameLater(t *testing.T) {
	b := netns(t, "wa")
	pair(t, b, netns(t, "wb"))
	c := serve(t)
	if _, err := c.AddTarget(t.Context(), target.Definition{Name: "web", Namespace: b}); err != nil {
		t.Fatal(err)
	}
	name := "nt-later" + strings.TrimPrefix(b, "nt-agent-")
	const text = "lab: base\nnodes: {client: {}, server: {}}\nlinks: [{a: client, b: server}]\ntargets: {web: {node: server, port: 80}}\n"
	if _, err := c.LabUp(t.Context(), labfile.Request{Name: "base", Text: []byte(text), From: labfile.Source{Path: "base.yaml"}, As: name}, nil); err != nil {
		t.Fatal(err)
	}
	full := name + "/web"
	_, err := c.Resolve(t.Context(), "web")
	_, applying := c.Apply(t.Context(), lossOf("web"))
	for _, err := range []error{err, applying} {
		if !errors.Is(err, lab.ErrAmbiguous) || !strings.Contains(err.Error(), full) || !strings.Contains(err.Error(), "netns:"+b) {
			t.Errorf("a name of two: %v", err)
		}
	}
	if got, err := c.Resolve(t.Context(), full); err != nil || got.Lab != name {
		t.Errorf("by its lab: %+v, %v", got, err)
	}
	if _, err := c.RemoveTarget(t.Context(), "web", false); err != nil {
		t.Error(err)
	}
	if got, err := c.Resolve(t.Context(), "web"); err != nil || got.Lab != name {
		t.Errorf("of one: %+v, %v", got, err)
	}

	if err := namespaces.Delete("netem-" + name + "-wire"); err != nil {
		t.Fatal(err)
	}
	_, err = c.Resolve(t.Context(), full)
	_, applying = c.Apply(t.Context(), lossOf(full))
	for _, err := range []error{err, applying} {
		if !errors.Is(err, target.ErrVanished) || !strings.Contains(err.Error(), "in netns netem-"+name+"-wire is gone") || !strings.Contains(fault.HintOf(err), "lab diff") {
			t.Errorf("without its wire: %v (%s)", err, fault.HintOf(err))
		}
	}
	all, err := c.Targets(t.Context())
	if err != nil || len(all) != 1 || !strings.Contains(all[0].Missing, "vanished") {
		t.Errorf("targets: %+v, %v", all, err)
	}
	if _, err := c.LabDown(t.Context(), name); err != nil {
		t.Error(err)
	}
}
