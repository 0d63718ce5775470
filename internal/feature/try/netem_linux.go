package try

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"netemd/internal/feature"
	"netemd/qdisc"
)

// Netem tries to impair packets with the kernel's sch_netem: in a scratch
// namespace that ends with the try, it adds a netem root to the loopback, reads it
// back and deletes it. Modules that are loaded, or not, say nothing: netem may be
// built in, or loaded by the try itself. It needs root.
func Netem(ctx context.Context) feature.Feature {
	f := tried(ctx, "sch_netem", "sch_netem", tryNetem)
	release := kernelRelease()
	if f.State == feature.No {
		f.Hint = netemHint("/", release)
	}
	f.Detail = fmt.Sprintf("%s (Linux %s)", f.Detail, release)
	return f
}

func tryNetem() (detail string, err error) {
	ns, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return "", err
	}
	defer func() { _ = ns.Close() }()
	c, err := qdisc.Dial(qdisc.Config{NetNS: int(ns.Fd()), Namespace: "scratch"})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	lo := qdisc.Device{Name: "lo", Index: loopback}
	want := qdisc.Netem{Loss: 20}
	if err := c.AddRoot(lo, want); err != nil {
		return "", err
	}
	s, err := c.Root(lo)
	if err != nil {
		return "", err
	}
	if differ := want.Differences(s.Netem); !s.Ours() || differ != nil {
		return "", fmt.Errorf("asked for netem with %s, the kernel gave %v with %s", want, s, s.Netem)
	}
	return fmt.Sprintf("a root %q was added to a scratch namespace's loopback and read back", "netem "+want.String()),
		errors.Join(c.DeleteRoot(lo))
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of unknown release"
	}
	return unix.ByteSliceToString(u.Release[:])
}

// netemHint says how to get sch_netem for the kernel of that release, on the
// system whose files are below root.
func netemHint(root, release string) string {
	const instead = "; or use another machine or VM whose kernel has it, or the ebpf engine, which does without"
	others, own := netemModules(root, release)
	switch {
	case own:
		return "sch_netem is installed for this kernel and could not be loaded: modprobe sch_netem says why; a container cannot load modules, its host can" + instead
	case len(others) > 0:
		return fmt.Sprintf("sch_netem is installed for %s, but this kernel is %s: reboot into %s, or install the modules of %s%s",
			strings.Join(others, " and "), release, others[len(others)-1], release, instead)
	}
	switch family(root) {
	case "debian":
		return fmt.Sprintf("install and boot one of Debian's kernels, which have sch_netem: apt install linux-image-%[1]s, or linux-image-cloud-%[1]s in a VM%[2]s", runtime.GOARCH, instead)
	case "ubuntu":
		return fmt.Sprintf("apt install linux-modules-extra-%s; if the archive has no package for this release any more, install a newer kernel with its modules-extra and reboot%s", release, instead)
	case "fedora", "rhel":
		return fmt.Sprintf("dnf install kernel-modules-extra-%s; if there is none for this release any more, install kernel and kernel-modules-extra and reboot%s", release, instead)
	}
	return "boot a kernel with CONFIG_NET_SCH_NETEM" + strings.TrimPrefix(instead, ";")
}

// netemModules are the releases other than this one that sch_netem is there for,
// and whether it is there for this one.
func netemModules(root, release string) (found []string, own bool) {
	for _, lib := range []string{"lib/modules", "usr/lib/modules"} {
		files, err := filepath.Glob(filepath.Join(root, lib, "*", "kernel/net/sched/sch_netem.ko*"))
		if err != nil {
			continue // the pattern is a good one
		}
		extra, err := filepath.Glob(filepath.Join(root, lib, "*", "extra/sch_netem.ko*"))
		if err == nil {
			files = append(files, extra...)
		}
		for _, f := range files {
			rest, _ := strings.CutPrefix(f, filepath.Join(root, lib)+string(filepath.Separator))
			other, _, _ := strings.Cut(rest, string(filepath.Separator))
			switch {
			case other == release:
				own = true
			case !slices.Contains(found, other):
				found = append(found, other)
			}
		}
	}
	slices.Sort(found)
	return found, own
}

// family is the distribution that the system is, or is like, by os-release(5).
func family(root string) string {
	b, err := os.ReadFile(filepath.Join(root, "etc/os-release"))
	if err != nil {
		return ""
	}
	var ids []string
	for line := range strings.Lines(string(b)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch value = strings.Trim(value, `"'`); name {
		case "ID":
			ids = append([]string{value}, ids...)
		case "ID_LIKE":
			ids = append(ids, strings.Fields(value)...)
		}
	}
	for _, id := range ids {
		switch id {
		case "debian", "ubuntu", "fedora", "rhel":
			return id
		}
	}
	return ""
}
