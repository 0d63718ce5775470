package qdisc

import (
	"errors"
	"fmt"
)

// ErrInvalid is what errors.Is finds in every FieldError.
var ErrInvalid = errors.New("invalid value")

// FieldError is one value that was refused. Validation returns all of them at
// once, joined with errors.Join.
type FieldError struct {
	// Field is the path of the value: "loss", "delay.jitter", "ttl". A parser
	// does not know it and leaves it empty; InField sets it.
	Field string
	// Value is what was given, as text.
	Value string
	// Want is the allowed form: `a percentage from 0% to 100%, such as 20%`.
	Want string
	// Why says what is wrong with the value, in place of Want, where the form is right:
	// `column 7: no field tcp.foo; want one of tcp.ack, tcp.fin`.
	Why string
}

// Error says the field, the value and the allowed form, or what is wrong, in one line.
func (e *FieldError) Error() string {
	switch {
	case e.Why != "" && e.Field == "":
		return fmt.Sprintf("%q: %s", e.Value, e.Why)
	case e.Why != "":
		return fmt.Sprintf("%s %q: %s", e.Field, e.Value, e.Why)
	case e.Field == "":
		return fmt.Sprintf("%q: want %s", e.Value, e.Want)
	case e.Value == "":
		return fmt.Sprintf("%s: want %s", e.Field, e.Want)
	}
	return fmt.Sprintf("%s %q: want %s", e.Field, e.Value, e.Want)
}

// Is reports that every FieldError is an ErrInvalid.
func (e *FieldError) Is(target error) bool { return target == ErrInvalid }

// InField says where a parser's value came from: it returns err with the field
// set if err is a FieldError that has none, and err as it is otherwise, nil
// included.
func InField(field string, err error) error {
	fe, ok := err.(*FieldError) //nolint:errorlint // only the parser's own error, never one deeper in a chain
	if !ok || fe.Field != "" {
		return err
	}
	named := *fe
	named.Field = field
	return &named
}

// Renamed gives each FieldError of err, which may be joined of several, the name that field
// makes of its own: a validation's paths become flags, or the keys of a file. What is joined
// stays so, other errors stay as they are, and nil stays nil.
func Renamed(err error, field func(string) string) error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // what a validation joined, not deeper in a chain
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, Renamed(e, field))
		}
		return errors.Join(errs...)
	}
	fe, ok := errors.AsType[*FieldError](err)
	if !ok {
		return err
	}
	named := *fe
	named.Field = field(fe.Field)
	return &named
}
