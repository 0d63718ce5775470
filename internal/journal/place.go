package journal

import "netemd/internal/target"

// Place is a place with what its namespace is found by when the name has gone.
type Place struct {
	target.Place
	// Path led to the namespace: /run/netns/NAME, or /proc/PID/ns/net of the agent.
	Path string
	// Inode is the namespace's on nsfs, as /proc/PID/ns/net of a process in it says
	// ("net:[4026531840]"); 0 where it could not be read. A number is given again: only
	// the Cookie says that it is the same namespace.
	Inode uint64
}
