package qdisc

import (
	"fmt"
	"slices"
	"strings"
)

// fewNames is how many of the names that there are an error tells: a line or two of them.
const fewNames = 20

// Few says what there is, for the Want of a FieldError: at most 20 names, in alphabetical
// order, and how many more. It is empty without names.
func Few(names []string) string {
	return First(fewNames, slices.Sorted(slices.Values(names)))
}

// First says at most n of the names, in the order given, and how many more there are.
func First(n int, names []string) string {
	if len(names) <= n {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:n], ", "), len(names)-n)
}
