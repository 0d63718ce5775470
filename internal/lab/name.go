package lab

import "slices"

// ValidName reports whether s can be the name of a lab, and of all that has one in it.
func ValidName(s string) bool { return nameForm().MatchString(s) }

// Commands reports whether the lab runs programs of whoever asked for it.
func (d Definition) Commands() bool {
	return slices.ContainsFunc(d.Nodes, func(n Node) bool {
		return slices.ContainsFunc(n.Services, func(s ServiceDefinition) bool {
			return s.command() || len(s.Command) > 0 || len(s.Ready.Command) > 0 || s.Log != ""
		})
	})
}
