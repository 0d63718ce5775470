package target

import "netemd/internal/cgroup"

// Cgroup is a group of processes, by the sockets of which packets are selected.
type Cgroup = cgroup.Group

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
