package labfile

import (
	"fmt"
	"strings"
	"sync"

	"netemd/internal/lab"
	"netemd/internal/lab/examples"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// builtins are parsed once.
var builtins = sync.OnceValue(func() []lab.Definition {
	var all []lab.Definition
	for _, name := range examples.Names() {
		text, _ := examples.Text(name)
		d, err := Parse(text, Source{Path: name + ".yaml"})
		if err != nil {
			panic(fmt.Sprintf("a built-in lab is not valid: %v", err)) // a test has seen all
		}
		all = append(all, d)
	}
	return all
})

// Builtins returns the labs that need no file, the simplest first.
func Builtins() []lab.Definition { return append([]lab.Definition(nil), builtins()...) }

// Names are those of the built-in labs, the simplest first.
func Names() []string { return examples.Names() }

// Text is the file of a built-in lab.
func Text(name string) ([]byte, bool) { return examples.Text(name) }

// Builtin returns the built-in lab of that name.
func Builtin(name string) (lab.Definition, bool) {
	for _, d := range builtins() {
		if d.Name == name {
			return d, true
		}
	}
	return lab.Definition{}, false
}

// Request asks for a lab: a built-in one by its name, or one by its text.
type Request struct {
	// Name is of a built-in lab, or the one that the Text has: the agent decides by it who may
	// make the lab, before it reads the text.
	Name string
	// Text is a lab file, and From where it comes from.
	Text []byte
	From Source
	// As is what the lab is called instead of its own name; empty: that.
	As string
}

// Definition is the lab that is asked for. The error matches lab.ErrUnknown for a name that
// is none, and is Parse's, or a *qdisc.FieldError of the field "as".
func (r Request) Definition() (d lab.Definition, err error) {
	switch {
	case len(r.Text) > 0 || r.Name == "":
		if d, err = Parse(r.Text, r.From); err != nil {
			return lab.Definition{}, err
		}
		if d.Name != r.Name {
			return lab.Definition{}, &qdisc.FieldError{Field: "name", Value: r.Name, Want: "the name that the text has, " + d.Name}
		}
	default:
		var ok bool
		if d, ok = Builtin(r.Name); !ok {
			return lab.Definition{}, unknownBuiltin(r.Name)
		}
	}
	if r.As == "" {
		return d, nil
	}
	if !lab.ValidName(r.As) {
		return lab.Definition{}, &qdisc.FieldError{Field: "as", Value: r.As, Want: "a name: 1 to 32 of a-z, 0-9 and '-', not at the ends"}
	}
	d.Name = r.As
	return d, nil
}

func unknownBuiltin(name string) error {
	known, near := examples.Names(), ""
	if n := strictyaml.Near(name, known); n != "" {
		near = fmt.Sprintf(" (did you mean %s?)", n)
	}
	return fmt.Errorf("%w %q%s: built in: %s; a file has a / or ends in .yaml", lab.ErrUnknown, name, near, strings.Join(known, ", "))
}
