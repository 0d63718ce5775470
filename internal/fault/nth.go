package fault

import (
	"errors"
	"fmt"
	"strings"

	"netemd/internal/target"
	"netemd/qdisc"
)

// Nth says of which of several faults err is, from 0: "faults[17].loss" is then the field of
// what was refused, and "faults[17]: " stands before other words.
func Nth(i int, err error) error {
	at := fmt.Sprintf("faults[%d]", i)
	if fields, ok := fieldsOf(err); ok {
		named := make([]error, len(fields))
		for k, f := range fields {
			n := *f
			if n.Field != "" {
				n.Field = "." + n.Field
			}
			n.Field = at + n.Field
			named[k] = &n
		}
		return errors.Join(named...)
	}
	return fmt.Errorf("%s: %w", at, err)
}

// fieldsOf returns the refused values that err consists of; false when there is more in it.
func fieldsOf(err error) (fields []*qdisc.FieldError, ok bool) {
	switch e := err.(type) { //nolint:errorlint // what is wrapped has words of its own
	case *qdisc.FieldError:
		return []*qdisc.FieldError{e}, true
	case *target.NotThereError:
		return []*qdisc.FieldError{e.FieldError}, true
	case interface{ Unwrap() []error }:
		var words []string
		for _, one := range e.Unwrap() {
			more, ok := fieldsOf(one)
			if !ok {
				return nil, false
			}
			fields, words = append(fields, more...), append(words, one.Error())
		}
		return fields, strings.Join(words, "\n") == err.Error()
	}
	return nil, false
}
