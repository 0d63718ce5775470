//go:build linux

package vm

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// firstModules are what the guest needs to see its root; their dependencies come
// with them, and what is built in is left out.
var firstModules = []string{"virtio_pci", "virtio_console", "fuse", "virtiofs", "overlay"}

// initScript mounts the host's root read-only under a tmpfs and hands over to
// guestScript, which it finds on the new root.
const initScript = `#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for m in /mods/*; do insmod $m; done
mount -t virtiofs -o ro hostroot /ro || exec reboot -f
mount -t tmpfs -o size=75% tmpfs /rw; mkdir -p /rw/u /rw/w
mount -t overlay overlay -o lowerdir=/ro,upperdir=/rw/u,workdir=/rw/w /new || exec reboot -f
for d in proc sys dev; do mount --move /$d /new/$d; done
mount -t tmpfs -o mode=755 tmpfs /new/run
mkdir -p /new/run/netemd-vm /new/run/lock /new/run/netns
cp /bin/busybox /guest /modules /new/run/netemd-vm
exec switch_root /new /bin/sh /run/netemd-vm/guest
`

// guestScript is the guest's first process. It copies what the command says to
// the port "out" and its exit code to the port "exit"; the pipe between them
// lets the command open /dev/stdout, which a port allows only once. As process 1
// it reaps what the command leaves behind while it waits. It uses a busybox of its
// own where a small machine may lack the program.
const guestScript = `bb=/run/netemd-vm/busybox
mkdir -p /dev/pts /dev/shm /lib/modules
$bb mount -t devpts devpts /dev/pts; $bb mount -t tmpfs -o mode=1777 shm /dev/shm
$bb mount -t cgroup2 cgroup /sys/fs/cgroup; $bb mount -t bpf bpf /sys/fs/bpf
$bb mount --bind "$(cat /run/netemd-vm/modules)" /lib/modules
ln -sf /proc/self/fd /dev/fd; ln -sf /proc/self/fd/0 /dev/stdin
ln -sf /proc/self/fd/1 /dev/stdout; ln -sf /proc/self/fd/2 /dev/stderr
chmod 1777 /tmp; chmod 666 /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx
[ -d /var/lib/postgresql ] && mkdir -m 2775 /run/postgresql && chown postgres:postgres /run/postgresql
echo netemd-vm >/proc/sys/kernel/hostname
$bb ip link set lo up
for p in /sys/class/virtio-ports/*; do
	case $(cat $p/name) in
	out) out=/dev/${p##*/};;
	exit) exit=/dev/${p##*/};;
	esac
done
mkfifo /run/netemd-vm/pipe
cat /run/netemd-vm/pipe >$out & copier=$!
/bin/sh "$(cat /proc/cmdline | tr ' ' '\n' | sed -n 's/^netemd.command=//p')" </dev/null >/run/netemd-vm/pipe 2>&1
code=$?
for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 $copier 2>/dev/null || break; sleep 0.2; done
echo $code >$exit
echo b >/proc/sysrq-trigger
sleep 60
`

// writeInitrd writes the guest's first root file system for the kernel in tree.
func writeInitrd(ctx context.Context, path, tree string) error {
	base, release, err := modulesOf(tree)
	if err != nil {
		return err
	}
	busybox, err := staticBusybox()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	c := cpio{w: &b}
	for _, d := range []string{"bin", "proc", "sys", "dev", "mods", "ro", "rw", "new"} {
		c.add(d, 0o040755, nil)
	}
	c.add("bin/busybox", 0o100755, busybox)
	c.add("init", 0o100755, []byte(initScript))
	c.add("guest", 0o100755, []byte(guestScript))
	c.add("modules", 0o100644, []byte(filepath.Join(base, "lib", "modules")))
	modules, err := loadOrder(ctx, base, release)
	if err != nil {
		return err
	}
	for i, m := range modules {
		data, err := readModule(ctx, m)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(m), ".ko")
		c.add(fmt.Sprintf("mods/%02d-%s.ko", i, name), 0o100644, data)
	}
	c.add("TRAILER!!!", 0, nil)
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// staticBusybox reads the busybox that runs without any library.
func staticBusybox() ([]byte, error) {
	for _, p := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		data, err := os.ReadFile(p)
		if err != nil {
			continue
		}
		f, err := elf.NewFile(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		if !slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
			return data, nil
		}
	}
	return nil, missing("a static busybox", "busybox-static")
}

// loadOrder lists the module files of firstModules, dependencies first.
func loadOrder(ctx context.Context, base, release string) ([]string, error) {
	var files []string
	for _, m := range firstModules {
		out, err := exec.CommandContext(ctx, sbin("modprobe"), "-d", base, "-S", release, "--show-depends", m).Output()
		if err != nil {
			return nil, fmt.Errorf("modprobe --show-depends %s: %w", m, err)
		}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) >= 2 && f[0] == "insmod" && !slices.Contains(files, f[1]) {
				files = append(files, f[1])
			}
		}
	}
	return files, nil
}

func readModule(ctx context.Context, path string) ([]byte, error) {
	if filepath.Ext(path) == ".xz" {
		data, err := exec.CommandContext(ctx, "xz", "-dc", path).Output()
		if err != nil {
			return nil, fmt.Errorf("xz: %s: %w", path, err)
		}
		return data, nil
	}
	return os.ReadFile(path)
}

// cpio writes the "newc" format that the kernel unpacks
// (Documentation/driver-api/early-userspace/buffer-format.rst). Its writer must
// not fail.
type cpio struct {
	w     io.Writer
	inode int
	n     int
}

func (c *cpio) add(name string, mode int, data []byte) {
	c.inode++
	c.write([]byte(fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x",
		c.inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)))
	c.write([]byte(name + "\x00"))
	c.pad()
	c.write(data)
	c.pad()
}

func (c *cpio) write(b []byte) {
	n, _ := c.w.Write(b)
	c.n += n
}

func (c *cpio) pad() { c.write(make([]byte, -c.n&3)) }
