//go:build linux

package vm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
)

// oldVirtiofsd is the folder of the virtiofsd that came with QEMU up to 7.2.
const oldVirtiofsd = "/usr/lib/qemu"

// Check says what this machine lacks to boot a guest, and how to get it.
func Check() error {
	var errs []error
	if runtime.GOARCH != "amd64" {
		errs = append(errs, fmt.Errorf("vm: made for amd64, this is %s", runtime.GOARCH))
	}
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("vm: needs root (virtiofsd serves the host's root)"))
	}
	for _, n := range []struct{ prog, pkg string }{
		{"qemu-system-x86_64", "qemu-system-x86"}, {"xz", "xz-utils"}, {sbin("modprobe"), "kmod"},
		{"apt-get", "apt"}, {"dpkg", "dpkg"},
	} {
		if _, err := exec.LookPath(n.prog); err != nil {
			errs = append(errs, missing(n.prog, n.pkg))
		}
	}
	if _, err := virtiofsd(); err != nil {
		errs = append(errs, err)
	}
	if _, err := staticBusybox(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func missing(what, pkg string) error {
	return fmt.Errorf("vm: %s is missing: apt-get install %s (or scripts/install.sh test)", what, pkg)
}

func virtiofsd() (string, error) {
	for _, d := range []string{"/usr/libexec", oldVirtiofsd} {
		if p := filepath.Join(d, "virtiofsd"); executable(p) {
			return p, nil
		}
	}
	return "", missing("virtiofsd", "virtiofsd, or qemu-system-common on Debian 12 and Ubuntu 22.04")
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// sbin finds a program that a user's PATH may not have.
func sbin(name string) string {
	for _, d := range []string{"/usr/sbin", "/sbin"} {
		if p := filepath.Join(d, name); executable(p) {
			return p
		}
	}
	return name
}

// invoker is the user who called sudo, to whom new files of the project belong.
func invoker() (cred *syscall.Credential, ok bool) {
	uid, errU := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	gid, errG := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if errU != nil || errG != nil || uid == 0 || os.Geteuid() != 0 {
		return nil, false
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, true
}

// giveBack hands a folder that was filled under sudo to the user who called it.
func giveBack(dir string) error {
	cred, ok := invoker()
	if !ok {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(cred.Uid), int(cred.Gid))
	})
}
