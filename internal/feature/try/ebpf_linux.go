package try

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/feature"
)

// loopback is the index of lo, the first device of every namespace.
const loopback = 1

// TCX tries to hang a program on a tcx hook, as the ebpf engine does. It needs
// root.
func TCX(ctx context.Context) feature.Feature {
	return tried(ctx, "tcx", "Linux 6.6 or later; without it the ebpf engine uses clsact and cls_bpf", func() (string, error) {
		prog, err := passing()
		if err != nil {
			return "", err
		}
		defer prog.Close()
		l, err := link.AttachTCX(link.TCXOptions{
			Interface: loopback, Program: prog, Attach: ebpf.AttachTCXEgress, Anchor: link.Head(),
		})
		if err != nil {
			return "", err
		}
		return "a program was attached at the head of lo's egress", l.Close()
	})
}

// CLSBPF tries to hang a program on clsact, as the ebpf engine does on kernels
// without tcx. It needs root.
func CLSBPF(ctx context.Context) feature.Feature {
	return tried(ctx, "cls_bpf", "the modules sch_ingress and cls_bpf (CONFIG_NET_SCH_INGRESS, CONFIG_NET_CLS_BPF)", func() (string, error) {
		prog, err := passing()
		if err != nil {
			return "", err
		}
		defer prog.Close()
		err = netlink.QdiscAdd(&netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: loopback, Parent: netlink.HANDLE_CLSACT, Handle: netlink.MakeHandle(0xffff, 0),
		}})
		if err != nil {
			return "", fmt.Errorf("add clsact: %w", err)
		}
		err = netlink.FilterAdd(&netlink.BpfFilter{
			FilterAttrs: netlink.FilterAttrs{
				LinkIndex: loopback, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1,
			},
			Fd: prog.FD(), Name: "try", DirectAction: true,
		})
		if err != nil {
			return "", fmt.Errorf("add cls_bpf filter: %w", err)
		}
		return "a program was attached to clsact's egress on lo", nil
	})
}

// TUN tries to make a TAP, through which the ebpf engine queues packets. It needs
// root.
func TUN(ctx context.Context) feature.Feature {
	return tried(ctx, "tun", "the module tun (CONFIG_TUN) and /dev/net/tun: modprobe tun", func() (string, error) {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			return "", fmt.Errorf("open /dev/net/tun: %w", err)
		}
		defer unix.Close(fd)
		ifr, err := unix.NewIfreq("try")
		if err != nil {
			return "", err
		}
		ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
			return "", fmt.Errorf("make a TAP: %w", err)
		}
		return "a TAP was made", nil
	})
}

// passing is a program that does nothing.
func passing() (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "netemd_try", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	if err != nil {
		return nil, fmt.Errorf("load program: %w", err)
	}
	return prog, nil
}

// tried runs try in a namespace without a name, which ends with its thread and
// takes along what try made there.
func tried(ctx context.Context, name, needs string, try func() (string, error)) feature.Feature {
	f := feature.Feature{Name: name}
	if err := context.Cause(ctx); err != nil {
		f.State, f.Detail = feature.Inconclusive, err.Error()
		return f
	}
	entered := false
	var err error
	scratch(func() {
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			err = fmt.Errorf("make a scratch namespace: %w", err)
			return
		}
		entered = true
		f.Detail, err = try()
	})
	switch {
	case err == nil:
		f.State = feature.Yes
	case !entered, errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		f.State, f.Detail = feature.Inconclusive, err.Error()
		f.Hint = "run as root, or with CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_BPF"
	default:
		f.State, f.Detail = feature.No, err.Error()
		f.Hint = "needs " + needs
	}
	return f
}

// scratch runs f on a thread that ends afterwards. It is never the main thread,
// whose end would leave the process without its first one.
func scratch(f func()) {
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread() // held here while another takes it on
			scratch(f)
		} else {
			f()
		}
		close(done)
	}()
	<-done
}
