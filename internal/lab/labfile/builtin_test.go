package labfile

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/lab"
	"netemd/internal/lab/examples"
)

// Each built-in lab is valid, has the name of its file, and is read back as it is written.
func TestBuiltins(t *testing.T) {
	for _, name := range examples.Names() {
		text, ok := examples.Text(name)
		if !ok {
			t.Errorf("%s has no file", name)
			continue
		}
		d, err := Parse(text, Source{Path: name + ".yaml"})
		if err != nil || d.Name != name || len(d.Targets) == 0 {
			t.Errorf("%s: %d targets, %v", d.Name, len(d.Targets), err)
			continue
		}
		again, err := YAML(d)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Parse(again, Source{}); err != nil || cmp.Diff(d, got, compare) != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, cmp.Diff(d, got, compare))
		}
		if _, err := d.Resolve(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, ok := examples.Text("../examples/pg"); ok {
		t.Error("a path is no name")
	}
}

func TestRequest(t *testing.T) {
	pg, _ := Builtin("pg")
	other := pg
	other.Name = "pg2"
	text, _ := examples.Text("pg")
	for _, c := range []struct {
		what    string
		request Request
		want    lab.Definition
		refused string
	}{
		{"a name", Request{Name: "pg"}, pg, ""},
		{"under another name", Request{Name: "pg", As: "pg2"}, other, ""},
		{"a text", Request{Name: "pg", Text: text}, pg, ""},
		{"a text under another name", Request{Name: "pg", Text: text, As: "pg2"}, other, ""},
		{"a text whose name is not said", Request{Text: text}, pg, `name: want the name that the text has, pg`},
		{"another text", Request{Name: "shop", Text: text}, pg, `name "shop": want the name that the text has, pg`},
		{"unknown", Request{Name: "sta"}, pg, `unknown lab "sta" (did you mean star?): built in: pg, echo, pg-replicas, three-tier, star, dumbbell, ring, payment, tiers, replicas; a file has a / or ends in .yaml`},
		{"bad name", Request{Name: "pg", As: "P G"}, pg, `as "P G": want a name: 1 to 32 of a-z, 0-9 and '-', not at the ends`},
	} {
		got, err := c.request.Definition()
		switch {
		case c.refused != "" && (err == nil || err.Error() != c.refused):
			t.Errorf("%s: %v, want %s", c.what, err, c.refused)
		case c.refused == "" && (err != nil || cmp.Diff(c.want, got, compare) != ""):
			t.Errorf("%s: %v (-want +got):\n%s", c.what, err, cmp.Diff(c.want, got, compare))
		}
	}
}
