// Package cgroup finds the groups of processes of cgroup v2, by their paths and as the units
// of systemd, and says where their packets pass. It asks the file system and the kernel only,
// never systemd.
package cgroup
