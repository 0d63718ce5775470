package lab

import (
	"errors"
	"fmt"
	"strings"

	"netemd/internal/target"
)

// ErrAmbiguous is returned, wrapped with the candidates, for the name of a target that
// several labs have.
var ErrAmbiguous = errors.New("ambiguous target")

// FindTarget finds a target of a lab among those of all labs that are up: by LAB/TARGET, or by
// its own name where one lab alone has it. The error is target.ErrUnknown, without the names
// that there are, or ErrAmbiguous.
func FindTarget(all []target.Target, name string) (target.Target, error) {
	of, short, full := strings.Cut(name, "/")
	if !full {
		of, short = "", name
	}
	var found []target.Target
	for _, t := range all {
		if t.Name == short && (!full || t.Lab == of) {
			found = append(found, t)
		}
	}
	switch len(found) {
	case 0:
		return target.Target{}, fmt.Errorf("%w %q", target.ErrUnknown, name)
	case 1:
		return found[0], nil
	}
	names := make([]string, len(found))
	for i, t := range found {
		names[i] = t.Lab + "/" + t.Name
	}
	return target.Target{}, fmt.Errorf("%w %q: it is one of %s", ErrAmbiguous, name, strings.Join(names, ", "))
}

// KeptTarget finds the target of a lab by its Key, which is never ambiguous.
func KeptTarget(all []target.Target, key string) (target.Target, bool) {
	for _, t := range all {
		if t.Key() == key {
			return t, true
		}
	}
	return target.Target{}, false
}
