package agent

import (
	"context"
	"errors"
	"fmt"

	"netemd/internal/lab"
	"netemd/internal/target"
)

// targetKey is the one name of the target that somebody calls by name, by which faults are
// kept and rules of access go, so that a lab which comes up later with a target of the same
// name changes neither. A name that no lab has is its own key; one that several have is
// lab.ErrAmbiguous.
func (a *Agent) targetKey(ctx context.Context, name string) (string, error) {
	if target.Inline(name) {
		return canonical(name), nil
	}
	if _, _, ok := a.definitions.find(name); ok {
		return name, nil
	}
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return "", err
	}
	t, err := lab.FindTarget(ts, name)
	switch {
	case err == nil:
		if d, origin, taken := a.definitions.find(t.Key()); taken {
			return "", fmt.Errorf("%w %q: the name %s of lab %s's target is that of %s, too (%s)", lab.ErrAmbiguous, name, t.Key(), t.Lab, d, origin)
		}
		return t.Key(), nil
	case errors.Is(err, target.ErrUnknown):
		return name, nil
	}
	return "", err
}

// targetKeys are the keys of a lab's targets.
func targetKeys(i lab.Info) []string {
	keys := make([]string, len(i.Targets))
	for k, name := range i.Targets {
		keys[k] = target.Target{Lab: i.Name, Name: name}.Key()
	}
	return keys
}
