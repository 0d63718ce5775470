package cgroup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"netemd/qdisc"
)

// unitKinds are those of systemd whose units have processes, and so a group
// (systemd.resource-control(5)).
var unitKinds = []string{".service", ".scope", ".slice", ".socket", ".mount", ".swap"}

// findUnit is the group of a unit of systemd, of the system's or of a user's: the one with
// its name, wherever it stands. A name without a kind is a service's. The error is a
// *qdisc.FieldError that lists the candidates when there are several, or none.
func findUnit(name string) (Group, error) {
	if !slices.Contains(unitKinds, filepath.Ext(name)) {
		name += ".service"
	}
	root, err := Root()
	if err != nil {
		return Group{}, err
	}
	var found, units []string
	err = walk(root, func(dir string) error {
		path := "/" + strings.TrimPrefix(strings.TrimPrefix(dir, root), "/")
		switch base := unit(filepath.Base(dir)); {
		case path == "/":
		case base == name:
			found = append(found, path)
		case slices.Contains(unitKinds, filepath.Ext(base)):
			units = append(units, base)
		}
		return nil
	})
	if err != nil {
		return Group{}, fmt.Errorf("find unit %s: %w", name, err)
	}
	switch len(found) {
	case 1:
		return findPath(found[0])
	case 0:
		want := "a unit that runs: no cgroup is called like one"
		if units = alike(name, units); len(units) > 0 {
			want = "a unit that runs: " + qdisc.Few(units)
		}
		return Group{}, gone{&qdisc.FieldError{Field: "unit", Value: name, Want: want}}
	}
	slices.Sort(found)
	return Group{}, &qdisc.FieldError{
		Field: "unit", Value: name, Want: "one of them, as cgroup:PATH: " + qdisc.Few(found),
	}
}

// unit takes off what systemd puts before a group's name that would be taken for something
// else ("_cpu.service", cg_escape of systemd's cgroup-util.c).
func unit(base string) string { return strings.TrimPrefix(base, "_") }

// alike are those of the same kind that begin with the same letter, or else all.
func alike(name string, units []string) []string {
	slices.Sort(units)
	units = slices.Compact(units)
	near := slices.DeleteFunc(slices.Clone(units), func(u string) bool {
		return filepath.Ext(u) != filepath.Ext(name) || u[0] != name[0]
	})
	if len(near) > 0 {
		return near
	}
	return units
}
