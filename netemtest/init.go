package netemtest

import "netemd/internal/child"

// The test's program is also the program of the agent's children. They have to be told apart
// before anybody's flags are parsed, and without asking for a TestMain: what they run is
// registered by packages that this one imports, so before this. In the test itself it is a
// comparison of one argument.
func init() {
	registerChildren()
	child.Run()
}
