package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"netemd/internal/fault"
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

// oneMeant refuses a name that a definition and the target of a lab have, which came up later:
// who says it may mean either. What was found by it before stays as it is.
func (a *Agent) oneMeant(ctx context.Context, name string) error {
	d, origin, ok := a.definitions.find(name)
	if !ok {
		return nil
	}
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return err
	}
	var also []string
	for _, t := range ts {
		if t.Name == name {
			also = append(also, t.Lab+"/"+t.Name)
		}
	}
	if len(also) == 0 {
		return nil
	}
	err = fmt.Errorf("%w %q: it is %s (%s), and one of lab %s", lab.ErrAmbiguous, name, d, origin, strings.Join(also, ", "))
	hint := "say " + strings.Join(also, " or ")
	if target.Inline(d.String()) {
		hint += " or " + d.String()
	}
	if origin == target.OriginAdded {
		hint += "; 'netemctl target remove " + name + "' leaves the lab's"
	}
	return fault.WithHint(err, hint)
}

// targetKeys are the keys of a lab's targets.
func targetKeys(i lab.Info) []string {
	keys := make([]string, len(i.Targets))
	for k, name := range i.Targets {
		keys[k] = target.Target{Lab: i.Name, Name: name}.Key()
	}
	return keys
}
