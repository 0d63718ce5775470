package target

import "strings"

// Cgroup is a group of processes of cgroup v2, and all groups below it. A socket belongs
// to the one in which its process was when it opened the socket; one that a server
// accepts, to that of the server's.
type Cgroup struct {
	// Path is where it stands below the hierarchy's root, "/system.slice/pg.service", for
	// people; and for Apart, which needs it of both.
	Path string
	// ID is the kernel's number of it, which is never given again (kernfs_node.id); 0 is any
	// socket, or none.
	ID uint64
	// Level is how many groups stand above it; the root has 0.
	Level int
}

// Any reports whether c selects nothing.
func (c Cgroup) Any() bool { return c.ID == 0 }

// apart reports whether no socket can be in both.
func (c Cgroup) apart(d Cgroup) bool {
	if c.Any() || d.Any() || c.ID == d.ID {
		return false
	}
	if c.Level == d.Level {
		return true
	}
	return c.Path != "" && d.Path != "" && !c.above(d) && !d.above(c)
}

// above reports whether d is c or stands below it, as their paths tell.
func (c Cgroup) above(d Cgroup) bool {
	if c.ID == d.ID {
		return true
	}
	return c.Path != "" && c.Level < d.Level && strings.HasPrefix(d.Path, strings.TrimSuffix(c.Path, "/")+"/")
}

// within returns the one of c and d that has no more sockets than both have in common; false
// when they have none.
func (c Cgroup) within(d Cgroup) (Cgroup, bool) {
	switch {
	case c.apart(d):
		return Cgroup{}, false
	case c.Any(), !d.Any() && d.Level > c.Level:
		return d, true
	}
	return c, true
}

// Of narrows what m includes to the processes of c at the source of its packets, as Match
// does for the direction "from", and leaves m as it is. Its Reverse selects what goes to them.
func (m Match) Of(c Cgroup) Match {
	flows := make([]Flow, 0, max(1, len(m.Include)))
	for _, f := range orAny(m.Include) {
		f.SourceCgroup = c
		flows = append(flows, f)
	}
	m.Include = flows
	return m
}

// Cgroups are those by which m selects, each once.
func (m Match) Cgroups() []Cgroup {
	var all []Cgroup
	for _, flows := range [][]Flow{m.Include, m.Exclude} {
		for _, f := range flows {
			for _, c := range []Cgroup{f.SourceCgroup, f.DestinationCgroup} {
				if !c.Any() {
					all = append(all, c)
				}
			}
		}
	}
	return compact(all)
}
