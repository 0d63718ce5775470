package netem

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/pmorjan/kmod"
	"golang.org/x/sys/unix"
)

// loadIFB loads the module of the ifb devices where it is one and not loaded, with
// numifbs=0: loaded by the kernel itself, at the first use, it makes two devices
// (ifb0, ifb1) in the host's namespace that nobody asked for.
func loadIFB() error {
	if _, err := os.Stat("/proc/modules"); errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without modules: it is built in, or there is none
	}
	if _, err := os.Stat("/sys/module/ifb"); err == nil {
		return nil
	}
	k, err := kmod.New(kmod.SetIgnoreAlias(), kmod.SetConfigFile(""), kmod.SetInitFunc(initModule))
	if err == nil {
		err = k.Load(ifbKind, "numifbs=0", 0)
	}
	if err != nil {
		return fmt.Errorf("load the kernel's module ifb: %w; `modprobe ifb numifbs=0` may: %w", err, errors.ErrUnsupported)
	}
	return nil
}

// compressed are the endings of module files that the kernel unpacks itself (since
// Linux 5.17, CONFIG_MODULE_DECOMPRESS).
var compressed = []string{".xz", ".zst", ".gz"}

func initModule(path, params string, flags int) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if slices.Contains(compressed, filepath.Ext(path)) {
		flags |= unix.MODULE_INIT_COMPRESSED_FILE
	}
	return unix.FinitModule(int(f.Fd()), params, flags)
}
