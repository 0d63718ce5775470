package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/match"
	"netemd/namespaces"
)

// dump is everything in the two namespaces that a fault could change: links with their
// aliases and settings, addresses, routes, rules, permanent neighbours, qdiscs, classes,
// filters, programs at tcx, and what each device may do with segments.
func (g *ground) dump() string {
	g.t.Helper()
	var all strings.Builder
	for _, namespace := range []string{g.here, g.there} {
		fmt.Fprintf(&all, "namespace %s\n", namespace)
		devices := g.hooks(&all, namespace)
		g.batch(&all, namespace, []string{"ip", "-d", "-batch", "-"},
			"link show\naddr show\nroute show table all\nneigh show nud permanent\n")
		ask := "qdisc show\n"
		for _, device := range devices {
			ask += strings.ReplaceAll("class show dev DEV\nfilter show dev DEV\nfilter show dev DEV ingress\nfilter show dev DEV egress\n", "DEV", device)
		}
		g.batch(&all, namespace, []string{"tc", "-d", "-batch", "-"}, ask)
	}
	return all.String()
}

// batch has a tool answer several questions in a namespace.
func (g *ground) batch(all *strings.Builder, namespace string, args []string, ask string) {
	g.t.Helper()
	cmd := exec.Command(args[0], append([]string{"-n", namespace}, args[1:]...)...)
	cmd.Stdin = strings.NewReader(ask)
	r := run(g.t, cmd)
	fmt.Fprintf(all, "%s: %d\n%s", strings.Join(args, " "), r.code, r.stdout)
}

// hooks adds the programs at tcx and the offload features of the devices of a namespace,
// and its rules, and returns the devices' names.
func (g *ground) hooks(all *strings.Builder, namespace string) (devices []string) {
	g.t.Helper()
	err := namespaces.Do(g.t.Context(), namespace, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			a := l.Attrs()
			devices = append(devices, a.Name)
			fmt.Fprintf(all, "%s: features %x\n", a.Name, features(a.Name))
			for _, at := range []ebpf.AttachType{ebpf.AttachTCXEgress, ebpf.AttachTCXIngress} {
				found, err := link.QueryPrograms(link.QueryOptions{Target: a.Index, Attach: at})
				if err != nil {
					continue // gone, or no tcx
				}
				for _, p := range found.Programs {
					name, _ := match.ProgramName(p.ID)
					fmt.Fprintf(all, "%s: %v: program %d %s\n", a.Name, at, p.ID, name)
				}
			}
		}
		rules, err := netlink.RuleList(netlink.FAMILY_ALL)
		for _, r := range rules {
			fmt.Fprintf(all, "%v, family %d\n", r, r.Family)
		}
		return err
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return devices
}

// features are the available, wanted and active feature bits of a device in the calling
// thread's namespace, and those that never change: ETHTOOL_GFEATURES of linux/ethtool.h.
// They are asked for in the older way, which the product does not use.
func features(device string) []uint32 {
	const getFeatures, blocks = 0x3a, 8
	request := make([]uint32, 2+4*blocks)
	request[0], request[1] = getFeatures, blocks
	var ifr struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(ifr.name[:], device)
	ifr.data = unsafe.Pointer(&request[0])
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = unix.Close(fd) }()
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr))); errno != 0 {
		return []uint32{uint32(errno)}
	}
	return request[2 : 2+4*request[1]]
}

// remains are what an agent of this state folder left on the machine, outside of the
// ground: names that it lent to namespaces, files, processes, and labs, if it had any.
func remains(stateDir string, labs bool) (found []string) {
	entries, _ := os.ReadDir("/run/netns")
	for _, e := range entries {
		if lentByDead(e.Name()) || labs && (strings.HasPrefix(e.Name(), "netem-pg-") || strings.HasPrefix(e.Name(), "netem-nt-e2e-shapes-")) {
			found = append(found, "namespace "+e.Name())
		}
	}
	_ = filepath.WalkDir(stateDir, func(path string, _ fs.DirEntry, err error) error {
		if !errors.Is(err, fs.ErrNotExist) {
			found = append(found, "file "+path)
		}
		return nil
	})
	for _, pid := range numbers("/proc") {
		where := fmt.Sprintf("/proc/%d/", pid)
		line, _ := os.ReadFile(where + "cmdline")
		environ, _ := os.ReadFile(where + "environ")
		if bytes.Contains(line, []byte(stateDir)) || bytes.Contains(environ, []byte(stateDir)) {
			found = append(found, fmt.Sprintf("process %d: %q", pid, line))
		}
	}
	return found
}

// lentByDead reports whether a name was lent to a namespace for a sweep, by a process that
// has ended.
func lentByDead(name string) bool {
	rest, ok := strings.CutPrefix(name, "netemd-sweep-")
	pid, _, _ := strings.Cut(rest, "-")
	_, err := os.Stat("/proc/" + pid)
	return ok && errors.Is(err, fs.ErrNotExist)
}

// numbers are the entries of a folder whose names are numbers.
func numbers(dir string) (all []int) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil {
			all = append(all, n)
		}
	}
	return all
}

// objects are the numbers of all of netemd's programs and maps in the kernel. Whoever
// holds one by a descriptor lives.
func objects() (found []string) {
	held := map[string]bool{}
	for _, pid := range numbers("/proc") {
		for _, fd := range numbers(fmt.Sprintf("/proc/%d/fd", pid)) {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
			for line := range strings.Lines(string(text)) {
				if key, number, _ := strings.Cut(line, ":"); key == "prog_id" || key == "map_id" {
					held[key+strings.TrimSpace(number)] = true
				}
			}
		}
	}
	for id, err := ebpf.ProgramGetNextID(0); err == nil; id, err = ebpf.ProgramGetNextID(id) {
		if name, err := match.ProgramName(id); err == nil && match.Ours(name) && !held[fmt.Sprintf("prog_id%d", id)] {
			found = append(found, fmt.Sprintf("program %d %s", id, name))
		}
	}
	for id, err := ebpf.MapGetNextID(0); err == nil; id, err = ebpf.MapGetNextID(id) {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue
		}
		if info, err := m.Info(); err == nil && match.Ours(info.Name) && !held[fmt.Sprintf("map_id%d", id)] {
			found = append(found, fmt.Sprintf("map %d %s", id, info.Name))
		}
		_ = m.Close()
	}
	slices.Sort(found)
	return found
}
