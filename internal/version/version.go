// Package version says which build this is.
package version

import "runtime/debug"

// Schema is the version of the JSON documents that netemctl writes.
const Schema = 1

// stamped is set by the linker: -X netemd/internal/version.stamped=v0.1.0.
var stamped string

// String returns the stamped version, or what the build knows of itself.
func String() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return "devel"
	}
	return info.Main.Version
}
