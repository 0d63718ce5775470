package agent

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Privilege is a capability that a running agent keeps, and what for (capabilities(7)).
type Privilege struct {
	Value cap.Value
	Why   string
}

// Privileges are the capabilities of an agent after its start, its children's among them.
// Without any of them tests of labs, engines or the agent fail, but for the last two: a
// configuration may ask for a low port, and without the priority faults are only less exact.
// Whatever else root has is given up, by all threads and for good: the start alone may load
// a kernel module.
var Privileges = []Privilege{
	{cap.NET_ADMIN, "devices, qdiscs, filters, addresses and routes; TAPs"},
	{cap.NET_RAW, "packet sockets: the ebpf engine's queue, and the packets of a verification"},
	{cap.SYS_ADMIN, "namespaces: making, entering and naming them (setns, unshare, mount); it also stands for BPF and PERFMON, which programs need"},
	{cap.SYS_PTRACE, "/proc/PID of other users: a lab's processes in a namespace, and the ssh session of whoever asks"},
	{cap.SETUID, "services of a lab that run as another user"},
	{cap.SETGID, "services of a lab that run as another user"},
	{cap.CHOWN, "the folders of those services, and the socket's group"},
	{cap.DAC_OVERRIDE, "those folders, and the records in them, when they belong to that user"},
	{cap.KILL, "the end of those services"},
	{cap.NET_BIND_SERVICE, "a listener, or a lab's service, below port 1024"},
	{cap.SYS_NICE, "the real-time priority of the thread that moves packets (without it a delay is late by more)"},
}

// ReducePrivileges gives up every capability that is not in Privileges, also for programs
// that are started later (the bounding set), on all threads. It returns those that are kept,
// and the names of those of Privileges that the agent never had, as in a container: what they
// are for will not work. The error says that something could not be given up.
func ReducePrivileges() (kept, missing []string, err error) {
	had := cap.GetProc()
	keep, wanted := cap.NewSet(), []cap.Value{}
	for _, p := range Privileges {
		if on, err := had.GetFlag(cap.Permitted, p.Value); err != nil || !on {
			missing = append(missing, p.Value.String())
			continue
		}
		wanted, kept = append(wanted, p.Value), append(kept, p.Value.String())
	}
	if err := errors.Join(keep.SetFlag(cap.Permitted, true, wanted...), keep.SetFlag(cap.Effective, true, wanted...)); err != nil {
		return nil, nil, fmt.Errorf("privileges: %w", err)
	}
	var drop []cap.Value
	for v := range cap.MaxBits() {
		if bound, err := cap.GetBound(v); err == nil && bound && !slices.Contains(wanted, v) {
			drop = append(drop, v)
		}
	}
	var errs []error
	if len(drop) > 0 {
		errs = append(errs, cap.DropBound(drop...))
	}
	if err := errors.Join(append(errs, keep.SetProc())...); err != nil {
		return nil, nil, fmt.Errorf("privileges: give up %s: %w", strings.Join(valueNames(drop), ", "), err)
	}
	slices.Sort(kept)
	return kept, missing, nil
}

func valueNames(vs []cap.Value) []string {
	var words []string
	for _, v := range vs {
		words = append(words, v.String())
	}
	return words
}
