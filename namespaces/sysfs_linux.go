package namespaces

import (
	"errors"
	"fmt"
	"os/exec"

	"golang.org/x/sys/unix"
)

// StartShown starts cmd as Start does, in a mount namespace of its own in which /sys shows the
// devices of the network namespace, as `ip netns exec` does; what is mounted below the host's
// /sys, such as control groups, is not seen there. What else the caller mounts later is. It
// needs CAP_SYS_ADMIN. The error is ErrSysfs, and cmd has not been started, where that is
// refused, as in some containers.
func (n *Namespace) StartShown(cmd *exec.Cmd) error {
	if cmd.SysProcAttr != nil && cmd.SysProcAttr.Pdeathsig != 0 {
		return errors.New("namespace start: Pdeathsig would fire when a thread ends")
	}
	// The thread ends with the call: nothing takes it back to the mounts that it had.
	return onThread(nil, func() error {
		if err := n.enter(); err != nil {
			return err
		}
		if err := showSysfs(); err != nil {
			return fmt.Errorf("%w of %s: %w", ErrSysfs, label(n.name), err)
		}
		return cmd.Start()
	})
}

// showSysfs gives the calling thread mounts of its own, and a new sysfs in them.
func showSysfs() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "none", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs("/sys", &st); err != nil {
		return err
	}
	// A read-only one cannot be covered with one that is not.
	flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	if st.Flags&unix.ST_RDONLY != 0 {
		flags |= unix.MS_RDONLY
	}
	return unix.Mount("sysfs", "/sys", "sysfs", flags, "")
}
