package kpi

import (
	"os"
	"strings"
	"testing"
)

// TestDocumented has each number and function in the documentation, in the same words.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/experiments.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range Metrics {
		name := m.Name
		if m.Kinds != "" {
			name += "[" + m.Kinds + "]"
		}
		if row := "| `" + name + "` | " + m.Means + " |\n"; !strings.Contains(string(text), row) {
			t.Errorf("docs/experiments.md lacks: %s", row)
		}
	}
	for _, f := range Functions() {
		name, _, _ := strings.Cut(f.Form, "(")
		if !strings.Contains(string(text), "`"+name) {
			t.Errorf("docs/experiments.md lacks the function %s", name)
		}
	}
}
