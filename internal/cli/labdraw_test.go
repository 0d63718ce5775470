package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/qdisc"
)

// Each built-in lab is drawn in 80 columns, with the faults where they are.
func TestDraw(t *testing.T) {
	var got strings.Builder
	for _, d := range labfile.Builtins() {
		plan, err := d.Plan()
		if err != nil {
			t.Fatal(err)
		}
		first := plan.Targets[0].Name
		faults := []fault.Fault{
			{ID: "kqv1", Spec: fault.Spec{Target: first, Packet: &qdisc.Netem{Loss: 20}, Direction: fault.Both}},
			{ID: "kqv2", Spec: fault.Spec{Target: d.Name + "/" + plan.Targets[len(plan.Targets)-1].Name, Packet: &qdisc.Netem{Loss: 100}}},
			{ID: "kqv3", Spec: fault.Spec{Target: first, Toxics: []fault.Toxic{{Kind: fault.Down}}}},
			{ID: "kqv4", Spec: fault.Spec{Target: "another", Packet: &qdisc.Netem{Loss: 1}}},
		}
		fmt.Fprintf(&got, "%s\n", d.Name)
		if !newDrawing(plan, map[string][]string{d.Nodes[0].Name: {"api :8080", "postgres :5432"}}, faults, style{}).draw(&got) {
			t.Errorf("%s is not drawn", d.Name)
		}
	}
	for line := range strings.Lines(got.String()) {
		if len(line) > drawWidth+1 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	path := filepath.Join("testdata", "drawings.txt")
	if *update {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A big lab, and a deep one, are told as lists.
func TestDrawBig(t *testing.T) {
	chain := lab.Definition{Name: "chain", Nodes: []lab.Node{{Name: "n0", Forward: true}}}
	many := lab.Definition{Name: "many"}
	for i := range 60 {
		many.Nodes = append(many.Nodes, lab.Node{Name: fmt.Sprintf("n%d", i)})
		if i > 0 && i < 20 {
			chain.Nodes = append(chain.Nodes, lab.Node{Name: fmt.Sprintf("n%d", i), Forward: true})
			chain.Links = append(chain.Links, lab.Link{A: fmt.Sprintf("n%d", i-1), B: fmt.Sprintf("n%d", i), AB: &qdisc.Netem{Loss: 1}})
		}
	}
	for _, d := range []lab.Definition{chain, many} {
		plan, err := d.Plan()
		if err != nil {
			t.Fatal(err)
		}
		drawing := newDrawing(plan, nil, nil, style{})
		var drawn, listed strings.Builder
		if drawing.draw(&drawn) || drawn.Len() > 0 {
			t.Errorf("%s is drawn:\n%s", d.Name, drawn.String())
		}
		drawing.listed(&listed)
		if n := strings.Count(listed.String(), "\n"); n != len(d.Nodes)+len(d.Links)+3 {
			t.Errorf("%s: %d lines:\n%s", d.Name, n, listed.String())
		}
	}
}
