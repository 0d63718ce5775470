package config

import (
	"errors"
	"strings"

	"netemd/qdisc"
)

// position is a place in the file, in lines and columns from 1; the zero value is none.
type position struct{ line, column int }

// places are those of each key and element of a file, by their path: "allow[0].verbs[1]".
type places map[string]position

// locate gives each mistake the place of its key, or of what that is in. A value that the
// file does not say is the default.
func (p places) locate(mistakes []*Mistake) {
	for _, m := range mistakes {
		if m.Line > 0 {
			continue
		}
		for key := m.Key; key != ""; key = parent(key) {
			if at, ok := p[key]; ok {
				m.Line, m.Column = at.line, at.column
				break
			}
		}
		switch _, said := p[m.Key]; {
		case said:
		case m.Value == "":
			m.Wrong = "is missing"
		case p != nil:
			m.Wrong = strings.Replace(m.Wrong, quote(m.Value), quote(m.Value)+", its default,", 1)
		}
	}
}

// parent is "allow" of "allow[0]", and that of "allow[0].verbs".
func parent(key string) string {
	if i := strings.LastIndexAny(key, ".["); i > 0 {
		return key[:i]
	}
	return ""
}

// ofFields are the *qdisc.FieldError in err as mistakes, and what else is in it.
func ofFields(err error) (mistakes []*Mistake, rest error) {
	switch e := err.(type) { //nolint:errorlint // what is wrapped in words of somebody else's is his
	case nil:
	case interface{ Unwrap() []error }:
		var others []error
		for _, err := range e.Unwrap() {
			m, other := ofFields(err)
			mistakes, others = append(mistakes, m...), append(others, other)
		}
		rest = errors.Join(others...)
	case *Mistake:
		mistakes = append(mistakes, e)
	case *qdisc.FieldError:
		m := &Mistake{Key: e.Field, Value: e.Value, Wrong: e.Why, Want: e.Want}
		switch {
		case m.Wrong != "" && m.Value != "":
			m.Wrong = quote(m.Value) + " " + m.Wrong
		case m.Wrong != "":
		case m.Value != "":
			m.Wrong = notValid(m.Value)
		default:
			m.Wrong = "is not valid"
		}
		mistakes = append(mistakes, m)
	default:
		rest = err
	}
	return mistakes, rest
}
