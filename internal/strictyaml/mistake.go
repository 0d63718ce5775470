package strictyaml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"netemd/qdisc"
)

// maxTold is how many mistakes of one file are told: whoever has more has another kind of
// file. maxQuoted are the bytes of a value that are.
const (
	maxTold   = 20
	maxQuoted = 64
)

// A Mistake is one thing that is wrong with a file. It is a *qdisc.FieldError for
// errors.As, and qdisc.ErrInvalid for errors.Is.
type Mistake struct {
	// Subject is Format.Subject. Path is the file, empty where the text came from elsewhere;
	// Line and Column, from 1, are those of the key, and 0 where the file does not have it.
	Subject      string
	Path         string
	Line, Column int
	// Key is "limits.faults" or "allow[1].verbs"; "file" is all of it.
	Key string
	// Value is what was given, as it was written; Wrong says what is wrong, and Want which
	// form is allowed; Want may be empty where Wrong says it.
	Value, Wrong, Want string
}

// Error is "SUBJECT PATH:LINE:COLUMN: KEY: WHAT IS WRONG, want FORM"; the subject is left out
// where there is a place in no file.
func (m *Mistake) Error() string {
	where := m.Path
	if m.Line > 0 {
		where = strings.TrimPrefix(fmt.Sprintf("%s:%d:%d", where, m.Line, m.Column), ":")
	}
	if m.Path != "" || where == "" {
		where = strings.TrimSpace(m.Subject + " " + where)
	}
	if where != "" {
		where += ": "
	}
	if m.Want == "" {
		return fmt.Sprintf("%s%s: %s", where, m.Key, m.Wrong)
	}
	return fmt.Sprintf("%s%s: %s, want %s", where, m.Key, m.Wrong, m.Want)
}

// Unwrap is the mistake as the rest of the program knows it.
func (m *Mistake) Unwrap() error {
	return &qdisc.FieldError{Field: m.Key, Value: m.Value, Want: m.Want}
}

// Join makes one error of mistakes, a line each, in the order in which they stand in the
// file, as far as one reads; nil for none.
func Join(mistakes []*Mistake) error {
	slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for i, m := range mistakes {
		if i == maxTold {
			last := *m
			last.Key, last.Wrong = Whole, fmt.Sprintf("has %d mistakes more from here on", len(mistakes)-maxTold)
			last.Want = "those above mended first"
			errs = append(errs, &last)
			break
		}
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// Of are the *qdisc.FieldError and *Mistake in err as mistakes without a place, and what
// else is in it.
func Of(err error) (mistakes []*Mistake, rest error) {
	switch e := err.(type) { //nolint:errorlint // what is wrapped in words of somebody else's is his
	case nil:
	case interface{ Unwrap() []error }:
		var others []error
		for _, err := range e.Unwrap() {
			m, other := Of(err)
			mistakes, others = append(mistakes, m...), append(others, other)
		}
		rest = errors.Join(others...)
	case *Mistake:
		mistakes = append(mistakes, e)
	case *qdisc.FieldError:
		m := &Mistake{Key: e.Field, Value: e.Value, Wrong: e.Why, Want: e.Want}
		switch {
		case m.Wrong != "" && m.Value != "":
			m.Wrong = Quote(m.Value) + " " + m.Wrong
		case m.Wrong != "":
		case m.Value != "":
			m.Wrong = NotValid(m.Value)
		default:
			m.Wrong = notValid
		}
		mistakes = append(mistakes, m)
	default:
		rest = err
	}
	return mistakes, rest
}

// Quote is a value for people, cut where it is long.
func Quote(value string) string {
	if len(value) > maxQuoted {
		value = value[:maxQuoted] + "..."
	}
	return strconv.Quote(value)
}

// NotValid says that a value is not of the form that is wanted.
func NotValid(value string) string { return Quote(value) + " " + notValid }

const notValid = "is not valid"
