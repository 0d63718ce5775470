// Package examples has the labs that are built in, as the texts that their users read.
package examples

import (
	"embed"
	"strings"
)

//go:embed *.yaml
var files embed.FS

// names are in the order in which they are told: the simplest first.
var names = []string{"pg", "echo", "pg-replicas", "three-tier", "star", "dumbbell", "ring", "payment", "tiers", "replicas"}

// Names are those of the built-in labs.
func Names() []string { return append([]string(nil), names...) }

// Text is the file of a built-in lab.
func Text(name string) ([]byte, bool) {
	if strings.ContainsAny(name, "/.") {
		return nil, false
	}
	text, err := files.ReadFile(name + ".yaml")
	return text, err == nil
}
