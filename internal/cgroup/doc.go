// Package cgroup finds the groups of processes of cgroup v2, by their paths and as the units
// of systemd. It asks the file system only, never systemd.
package cgroup
