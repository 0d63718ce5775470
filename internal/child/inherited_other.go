//go:build !linux

package child

// KeepInherited has nothing to do: children are started on Linux only.
func KeepInherited() error { return nil }
