package cgroup

import "strings"

// Group is a group of processes of cgroup v2, and all groups below it. A socket belongs
// to the one in which its process was when it opened the socket; one that a server
// accepts, to that of the server's.
type Group struct {
	// Path is where it stands below the hierarchy's root, "/system.slice/pg.service", for
	// people; and for Apart, which needs it of both.
	Path string
	// ID is the kernel's number of it, which is never given again (kernfs_node.id); 0 is any
	// socket, or none.
	ID uint64
	// Level is how many groups stand above it; the root has 0.
	Level int
}

// Any reports whether g selects nothing.
func (g Group) Any() bool { return g.ID == 0 }

// Apart reports whether no socket can be in both.
func (g Group) Apart(h Group) bool {
	if g.Any() || h.Any() || g.ID == h.ID {
		return false
	}
	if g.Level == h.Level {
		return true
	}
	return g.Path != "" && h.Path != "" && !g.Above(h) && !h.Above(g)
}

// Above reports whether h is g or stands below it, as their paths tell.
func (g Group) Above(h Group) bool {
	if g.ID == h.ID {
		return true
	}
	return g.Path != "" && g.Level < h.Level && strings.HasPrefix(h.Path, strings.TrimSuffix(g.Path, "/")+"/")
}

// Within returns the one of g and h that has no more sockets than both have in common; false
// when they have none.
func (g Group) Within(h Group) (Group, bool) {
	switch {
	case g.Apart(h):
		return Group{}, false
	case g.Any(), !h.Any() && h.Level > g.Level:
		return h, true
	}
	return g, true
}
