package ebpf

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/failpoint"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
)

// attachment is a program on one hook of one device.
type attachment interface {
	// attached is fs.ErrNotExist when the program is no longer there.
	attached() error
	// detach takes the program off. What is gone already is no error.
	detach() error
}

// attacher puts programs on devices: on tcx, or on clsact where the kernel has no
// tcx. It must be called in the device's namespace.
type attacher struct {
	mu  sync.Mutex
	log *slog.Logger
	// legacy forces clsact.
	legacy bool
	// made are the devices whose clsact this engine made.
	made map[clsact]bool
}

// clsact is one device's clsact qdisc.
type clsact struct {
	netns identity
	index int
}

func (a *attacher) attach(namespace string, index int, hook target.Hook, prog *ebpf.Program) (attachment, error) {
	if !a.legacy {
		at := ebpf.AttachTCXEgress
		if hook == target.Ingress {
			at = ebpf.AttachTCXIngress
		}
		l, err := link.AttachTCX(link.TCXOptions{
			Interface: index, Program: prog, Attach: at, Anchor: link.Head(),
		})
		switch {
		case err == nil:
			return &tcx{log: a.log, namespace: namespace, index: index, hook: hook, at: at, link: l, prog: prog}, nil
		case gone(err):
			return nil, fmt.Errorf("attach to tcx %s: %w (%w)", hook, fs.ErrNotExist, err)
		case errors.Is(err, syscall.ERANGE):
			return nil, fmt.Errorf("attach to tcx %s: %w", hook, fault.FullHook(err))
		case !errors.Is(err, ebpf.ErrNotSupported):
			return nil, fmt.Errorf("attach to tcx %s: %w", hook, err)
		}
	}
	return a.attachFilter(namespace, index, hook, prog)
}

// tcx is a link; it ends with this process. The fields keep the file descriptors
// from their finalizers.
type tcx struct {
	log       *slog.Logger
	namespace string
	index     int
	hook      target.Hook
	at        ebpf.AttachType
	link      link.Link
	prog      *ebpf.Program
	// moves counts how often lead had to put the program back.
	moves int
	// revision is that of the hook (bpf_mprog.h) when the program was last found in its
	// place; 0 is none.
	revision uint64
}

func (t *tcx) attached() error {
	info, err := t.link.Info()
	if err != nil {
		return err
	}
	if x := info.TCX(); x == nil || x.Ifindex == 0 {
		return fmt.Errorf("the program was detached: tcx link %d: %w", info.ID, fs.ErrNotExist)
	}
	return nil
}

func (t *tcx) detach() error { return errors.Join(t.link.Close(), t.prog.Close()) }

// Filters carry their maker's process in their name, so that Sweep takes away only
// what a dead process left: netemd-PID-STARTTIME, and -made where the clsact below
// is ours too.
const (
	filterName   = "netemd"
	filterMade   = "made"
	filterHandle = 0x4e450000
)

var ownFilter = sync.OnceValue(func() string {
	return fmt.Sprintf("%s-%d-%s", filterName, os.Getpid(), startTime(os.Getpid()))
})

// filter is a cls_bpf filter, which outlives this process.
type filter struct {
	a         *attacher
	namespace string
	netns     identity
	filter    *netlink.BpfFilter
	prog      *ebpf.Program
}

func parent(hook target.Hook) uint32 {
	if hook == target.Ingress {
		return netlink.HANDLE_MIN_INGRESS
	}
	return netlink.HANDLE_MIN_EGRESS
}

func (a *attacher) attachFilter(namespace string, index int, hook target.Hook, prog *ebpf.Program) (attachment, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	netns, err := identify(namespace)
	if err != nil {
		return nil, err
	}
	at := clsact{netns, index}
	switch f, err := a.open(at, hook, prog); {
	case f != nil:
		return &filter{a: a, namespace: namespace, netns: netns, filter: f, prog: prog}, nil
	case gone(err):
		return nil, fmt.Errorf("add clsact: %w (%w)", fs.ErrNotExist, err)
	case err != nil:
		return nil, err
	}
	name := ownFilter()
	if a.made[at] {
		name += "-" + filterMade
	}
	handle, err := a.freeHandle(index, hook)
	if err != nil {
		return nil, err
	}
	// The kernel puts a new filter before those of the same kind and priority; a
	// priority that another kind holds is refused.
	f := &netlink.BpfFilter{
		FilterAttrs: netlink.FilterAttrs{
			LinkIndex: index, Parent: parent(hook), Handle: handle, Protocol: unix.ETH_P_ALL, Priority: 1,
		},
		Fd: prog.FD(), Name: name, DirectAction: true,
	}
	for ; f.Priority < 16; f.Priority++ {
		err = netlink.FilterAdd(f)
		if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("add cls_bpf filter: %w", err)
		return nil, errors.Join(err, a.release(at))
	}
	failpoint.At("ebpf.filter.added")
	if f.Priority > 1 {
		a.log.Warn("ebpf: a filter of another kind comes first and may keep packets from the engine",
			"namespace", namespace, "device", index, "hook", hook, "priority", f.Priority)
	}
	return &filter{a: a, namespace: namespace, netns: netns, filter: f, prog: prog}, nil
}

// freeHandle finds a handle that no filter at the hook has.
func (a *attacher) freeHandle(index int, hook target.Hook) (uint32, error) {
	all, err := filters(index, hook)
	if err != nil {
		return 0, err
	}
	handle := uint32(filterHandle)
	for _, f := range all {
		if h := f.Attrs().Handle; h >= handle && h < filterHandle+0xffff {
			handle = h + 1
		}
	}
	return handle, nil
}

func filters(index int, hook target.Hook) ([]netlink.Filter, error) {
	stub := &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
	all, err := namespaces.Whole(func() ([]netlink.Filter, error) { return netlink.FilterList(stub, parent(hook)) })
	if err != nil {
		return nil, fmt.Errorf("list filters: %w", err)
	}
	return all, nil
}

func (f *filter) attached() error {
	return namespaces.Do(context.Background(), f.namespace, func() error {
		all, err := filters(f.filter.LinkIndex, hookOf(f.filter.Parent))
		if gone(err) {
			return fmt.Errorf("%w (%w)", fs.ErrNotExist, err)
		}
		if err != nil {
			return err
		}
		for _, other := range all {
			if b, ok := other.(*netlink.BpfFilter); ok && b.Handle == f.filter.Handle && b.Name == f.filter.Name {
				return nil
			}
		}
		return fmt.Errorf("the program was detached: cls_bpf filter %#x: %w", f.filter.Handle, fs.ErrNotExist)
	})
}

func hookOf(parent uint32) target.Hook {
	if parent == netlink.HANDLE_MIN_INGRESS {
		return target.Ingress
	}
	return target.Egress
}

func (f *filter) detach() error {
	f.a.mu.Lock()
	defer f.a.mu.Unlock()
	defer f.prog.Close()
	at := clsact{f.netns, f.filter.LinkIndex}
	if id, err := identify(f.namespace); err != nil || id != f.netns {
		delete(f.a.made, at) // gone with the namespace
		return nil
	}
	return namespaces.Do(context.Background(), f.namespace, func() error {
		if last, err := f.a.last(at, f.filter); err == nil && last {
			return f.a.close(at)
		}
		err := netlink.FilterDel(f.filter)
		if gone(err) {
			delete(f.a.made, at)
			return nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("delete cls_bpf filter: %w", err)
		}
		failpoint.At("ebpf.filter.gone")
		return f.a.release(at)
	})
}

// startTime is the 22nd field of /proc/PID/stat, which with the PID names a
// process for good; empty when there is none.
func startTime(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is a name in parentheses and may hold anything.
	_, rest, _ := strings.Cut(string(b[strings.LastIndexByte(string(b), ')'):]), " ")
	fields := strings.Fields(rest)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}
