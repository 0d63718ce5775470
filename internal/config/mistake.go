package config

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

// A Mistake is one thing that is wrong with a configuration. It is a *qdisc.FieldError for
// errors.As, and qdisc.ErrInvalid for errors.Is.
type Mistake struct {
	// Path is the file, empty where the text came from elsewhere; Line and Column, from 1,
	// are those of the key, and 0 where the file does not have it.
	Path         string
	Line, Column int
	// Key is "limits.faults" or "allow[1].verbs"; "file" is all of it.
	Key string
	// Value is what was given, as it was written; Wrong says what is wrong, and Want which
	// form is allowed.
	Value, Wrong, Want string
}

// Error is "configuration PATH:LINE:COLUMN: KEY: WHAT IS WRONG, want FORM".
func (m *Mistake) Error() string {
	where := m.Path
	if m.Line > 0 {
		where = strings.TrimPrefix(fmt.Sprintf("%s:%d:%d", where, m.Line, m.Column), ":")
	}
	if m.Path != "" || where == "" {
		where = strings.TrimSpace("configuration " + where)
	}
	return fmt.Sprintf("%s: %s: %s, want %s", where, m.Key, m.Wrong, m.Want)
}

// Unwrap is the mistake as the rest of the program knows it.
func (m *Mistake) Unwrap() error {
	return &qdisc.FieldError{Field: m.Key, Value: m.Value, Want: m.Want}
}

// all are mistakes as one error, a line each, in the order in which they stand in the file;
// nil for none.
func all(mistakes []*Mistake) error {
	slices.SortStableFunc(mistakes, func(a, b *Mistake) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for i, m := range mistakes {
		if i == maxTold {
			last := *m
			last.Key, last.Wrong = "file", fmt.Sprintf("has %d mistakes more from here on", len(mistakes)-maxTold)
			last.Want = "those above mended first"
			errs = append(errs, &last)
			break
		}
		errs = append(errs, m)
	}
	return errors.Join(errs...)
}

// quote is a value for people, cut where it is long.
func quote(value string) string {
	if len(value) > maxQuoted {
		value = value[:maxQuoted] + "..."
	}
	return strconv.Quote(value)
}

// notValid says that a value is not of the form that is wanted.
func notValid(value string) string { return quote(value) + " is not valid" }
