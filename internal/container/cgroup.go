package container

import (
	"regexp"
	"slices"
	"strings"
)

// A part of a control group's path that is a container's: 64 hexadecimal digits as runc's
// and crun's callers draw them, alone with the cgroupfs driver, with the runtime before and
// ".scope" behind with systemd's, and in one part with a slice where containerd's CRI plugin
// has no systemd ("kubepods-burstable-pod12.slice:cri-containerd:4bf..."). A monitor of conmon's,
// "libpod-conmon-4bf...", is none.
var idPart = regexp.MustCompile(`^(?:.*:)?(?:(docker|libpod|cri-containerd|crio|nerdctl|containerd)[-:])?([0-9a-f]{64})(?:\.scope)?$`)

// runtimes are the words of a path by their runtime.
var runtimes = map[string]string{
	"docker": "docker", "libpod": "podman", "libpod_parent": "podman", "cri-containerd": "kubernetes", "crio": "cri-o",
	"nerdctl": "containerd", "containerd": "containerd", "default": "containerd", "kubepods": "kubernetes", "kubepods.slice": "kubernetes",
}

// idOf finds the container that a path is of: the innermost, where one runs in another.
func idOf(path string) (id, runtime string) {
	parts := strings.Split(path, "/")
	for i, part := range slices.Backward(parts) {
		m := idPart.FindStringSubmatch(part)
		if m == nil {
			continue
		}
		if runtime = runtimes[m[1]]; runtime == "" && strings.Contains(part, ":cri-containerd:") {
			runtime = "kubernetes"
		}
		for _, above := range slices.Backward(parts[:i]) {
			if runtime == "" {
				runtime = runtimes[above]
			}
		}
		return m[2], runtime
	}
	return "", ""
}

// parseCgroups reads /proc/PID/cgroup: "ID:CONTROLLERS:PATH" in each line, in version 2
// "0::PATH" (cgroups(7)). A process is in the container that any of its paths names, and
// unified is its path in version 2.
func parseCgroups(text string) (id, runtime, unified string) {
	for line := range strings.Lines(text) {
		number, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		_, path, ok2 := strings.Cut(rest, ":")
		if !ok || !ok2 {
			continue
		}
		if number == "0" {
			unified = path
		}
		if id == "" {
			id, runtime = idOf(path)
		}
	}
	return id, runtime, unified
}
