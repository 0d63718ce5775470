package container

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Find returns the container that ref says: its whole id, its name, or a beginning of its
// id that no other has; in that order. It needs no privilege. The error is ErrUnknown,
// ErrAmbiguous or ErrStopped and names what there is; one of a socket that gave no answer is
// among them, since its names may be what is missing.
func Find(ctx context.Context, ref string) (Container, error) {
	return find(ctx, "/proc", sockets(), ref)
}

// List returns the containers that run, by name and id. The error says which socket gave no
// answer; the containers are right without their names then.
func List(ctx context.Context) ([]Container, error) {
	run, err := running(ctx, "/proc")
	if err != nil {
		return nil, err
	}
	named, err := ask(ctx, sockets())
	return sorted(run, named), err
}

// sorted are the containers with the names that they have.
func sorted(run map[string]Container, named []known) []Container {
	for _, k := range named {
		if c, ok := run[k.ID]; ok && c.Name == "" {
			c.Name = k.name()
			run[k.ID] = c
		}
	}
	all := make([]Container, 0, len(run))
	for _, c := range run {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b Container) int { return strings.Compare(a.Name+" "+a.ID, b.Name+" "+b.ID) })
	return all
}

func find(ctx context.Context, proc string, sockets []string, ref string) (Container, error) {
	run, err := running(ctx, proc)
	if err != nil {
		return Container{}, err
	}
	named, silent := ask(ctx, sockets)
	all := sorted(run, named)
	if c, ok := run[ref]; ok {
		return c, nil
	}
	var byName, stopped []known
	for _, k := range named {
		if slices.Contains(k.Names, "/"+ref) || slices.Contains(k.Names, ref) { // podman has no slash in all versions
			byName = append(byName, k)
		}
		if _, runs := run[k.ID]; !runs && strings.HasPrefix(k.ID, ref) {
			stopped = append(stopped, k)
		}
	}
	var fits []Container
	for _, c := range all {
		if slices.ContainsFunc(byName, func(k known) bool { return k.ID == c.ID }) {
			fits = append(fits, c)
		}
	}
	if len(byName) == 0 {
		for _, c := range all {
			if strings.HasPrefix(c.ID, ref) {
				fits = append(fits, c)
			}
		}
	}
	beside := ""
	if silent != nil {
		beside = "; " + strings.ReplaceAll(silent.Error(), "\n", "; ")
	}
	switch {
	case len(fits) == 1:
		return fits[0], nil
	case len(fits) > 1:
		return Container{}, fmt.Errorf("%w %q: one of %s%s", ErrAmbiguous, ref, few(fits), beside)
	case len(byName)+len(stopped) > 0:
		k := append(byName, stopped...)[0]
		return Container{}, fmt.Errorf("%w: %s (%s) is %s; those that run: %s", ErrStopped, ref, k.ID[:min(len(k.ID), idShown)], k.State, few(all))
	}
	return Container{}, fmt.Errorf("%w %q: those that run: %s%s", ErrUnknown, ref, few(all), beside)
}
