//go:build !linux

package journal

import "netemd/internal/target"

func placesOf(places []target.Place) []Place {
	all := make([]Place, len(places))
	for i, p := range places {
		all[i] = Place{Place: p}
	}
	return all
}

func bootID() (string, error) { return "", nil }
