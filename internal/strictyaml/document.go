package strictyaml

import (
	"errors"
	"strings"
)

// Position is a place in a file, in lines and columns from 1; the zero value is none.
type Position struct{ Line, Column int }

// Document is a text that was read: where each key of it stands, and what is wrong. It is
// for one goroutine at a time; a nil one is of a file that there is not.
type Document struct {
	format *Format
	path   string
	// at are the places of each key and element by their path: "allow[0].verbs[1]"; nil
	// where the text could not be read.
	at       map[string]Position
	mistakes []*Mistake
}

// broken is a document that could not be read.
func (d *Document) broken(m *Mistake) *Document {
	d.mistakes = append(d.mistakes, m)
	return d
}

// Readable reports whether the text is YAML of our kind, so that what was read is worth
// a validation.
func (d *Document) Readable() bool { return d != nil && d.at != nil }

// Path is that of the file; empty where there is none.
func (d *Document) Path() string {
	if d == nil {
		return ""
	}
	return d.path
}

// Has reports whether the file says the key, such as "allow[0].verbs" or "nodes.web.routes[1]".
// A name in which anything but letters, digits and a few signs stands is quoted (Word).
func (d *Document) Has(key string) bool {
	_, ok := d.place(key)
	return ok
}

// At is where the key stands, or the nearest that it is in; the zero Position for none.
func (d *Document) At(key string) Position {
	for ; key != ""; key = parent(key) {
		if at, ok := d.place(key); ok {
			return at
		}
	}
	return Position{}
}

func (d *Document) place(key string) (Position, bool) {
	if d == nil {
		return Position{}, false
	}
	at, ok := d.at[key]
	return at, ok
}

// Add takes mistakes that were found in what was read; their places are those of their keys.
// One about a key that is refused already, or about what is in it or around it, is left
// out: what follows from a mistake is none. So are all, where the text could not be read.
func (d *Document) Add(mistakes ...*Mistake) {
	if !d.Readable() {
		return
	}
	var fresh []*Mistake
	for _, m := range mistakes {
		if !d.about(m.Key) {
			fresh = append(fresh, m)
		}
	}
	d.locate(fresh)
	d.mistakes = append(d.mistakes, fresh...)
}

// Check adds each *qdisc.FieldError and *Mistake of err, as a validation returns them, by
// its field, and returns what else is in it.
func (d *Document) Check(err error) error {
	mistakes, rest := Of(err)
	d.Add(mistakes...)
	return rest
}

// Err is all that is wrong, a *Mistake a line, in the order of the file; nil for nothing.
func (d *Document) Err() error {
	d.named(d.mistakes)
	return Join(d.mistakes)
}

// Explain makes each *qdisc.FieldError of err a *Mistake with the file, line and column, as
// for a value of which only the host knows that it is wrong. Other errors stay as they are.
func (d *Document) Explain(err error) error {
	mistakes, rest := Of(err)
	if len(mistakes) == 0 {
		return err
	}
	d.locate(mistakes)
	d.named(mistakes)
	return errors.Join(Join(mistakes), rest)
}

// named gives mistakes the file's name.
func (d *Document) named(mistakes []*Mistake) {
	for _, m := range mistakes {
		if d != nil {
			m.Subject, m.Path = d.format.Subject, d.path
		}
	}
}

// locate gives each mistake the place of its key, or of what that is in. A value that the
// file does not say is the default.
func (d *Document) locate(mistakes []*Mistake) {
	for _, m := range mistakes {
		if m.Line > 0 {
			continue
		}
		at := d.At(m.Key)
		m.Line, m.Column = at.Line, at.Column
		switch {
		case d.Has(m.Key):
		case m.Value == "":
			if m.Wrong == notValid || m.Wrong == NotValid("") {
				m.Wrong = "is missing"
			}
		case d.Readable():
			m.Wrong = strings.Replace(m.Wrong, Quote(m.Value), Quote(m.Value)+", its default,", 1)
		}
		if m.Line == 0 && m.Wrong == "is missing" && d.Readable() && d.path != "" {
			m.Line, m.Column = 1, 1 // it belongs to the whole file, and editors go to a line
		}
	}
}

// refused reports whether there is a mistake at the key itself.
func (d *Document) refused(key string) bool {
	for _, m := range d.mistakes {
		if m.Key == key {
			return true
		}
	}
	return false
}

// about reports whether there is a mistake at the key, above or below it.
func (d *Document) about(key string) bool {
	for _, m := range d.mistakes {
		if within(m.Key, key) || within(key, m.Key) {
			return true
		}
	}
	return false
}

func within(key, other string) bool {
	rest, ok := strings.CutPrefix(key, other)
	return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
