// Package container finds the containers of this host without the libraries of what runs
// them: their processes by the control groups that /proc names, and their names by the
// Docker-compatible socket, where there is one.
package container

import (
	"cmp"
	"errors"

	"netemd/qdisc"
)

// Errors of Find, wrapped with the containers that there are.
var (
	ErrUnknown   = errors.New("unknown container")
	ErrAmbiguous = errors.New("ambiguous container")
	ErrStopped   = errors.New("container is not running")
)

// Container is one that runs.
type Container struct {
	// ID is the runtime's, mostly 64 hexadecimal digits.
	ID string
	// Name is what the Docker-compatible socket calls it; empty where none does.
	Name string
	// Runtime is what the control group or the shim tells of who runs it: "docker", "podman",
	// "containerd", "cri-o", "kubernetes"; empty for one that its path does not tell.
	Runtime string
	// PID is its first process, as seen from here.
	PID int
	// Cgroup is the process's path in the hierarchy of version 2; empty where it has none.
	Cgroup string
}

// idShown is as much of an id as people use (docker ps).
const idShown = 12

// String is its name and the beginning of its id.
func (c Container) String() string {
	id := c.ID[:min(len(c.ID), idShown)]
	if c.Name == "" {
		return id
	}
	return c.Name + " (" + id + ")"
}

// few says some of the containers, in order.
func few(all []Container) string {
	words := make([]string, len(all))
	for i, c := range all {
		words[i] = c.String()
	}
	return cmp.Or(qdisc.Few(words), "none runs here")
}
