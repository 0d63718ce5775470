//go:build linux

package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// memoryMB is the guest's memory; the host gives only what the guest touches.
const memoryMB = 3072

// AccelEnv chooses QEMU's accelerator, "tcg" when empty. "kvm" is not the
// default since nested KVM was seen to hang after the BIOS.
const AccelEnv = "NETEMD_VM_ACCEL"

// Machine is one guest to boot.
type Machine struct {
	// Tree is the kernel's folder, from Kernel.Fetch.
	Tree string
	// Dir is the working directory of the command.
	Dir string
	// Env is added to the command's environment, as "NAME=value".
	Env []string
	// Console, when set, receives the guest's kernel messages.
	Console io.Writer
}

// DiedError is a guest that ended without an exit code. An emulated guest with two
// processors does so once in a while: each is a thread of QEMU, and one was seen to trap
// on an instruction that the other had just patched (a static key, as the first clsact of
// a kernel turns one), which ended in a kernel panic. With one processor there is no such
// race, but then the engine's threads and the traffic wait for each other so long that
// tests of timing say nothing.
type DiedError struct {
	// Err is what QEMU, or the reading of the exit code, said.
	Err error
	// Console is the end of the guest's kernel messages, Files what virtiofsd said.
	Console, Files string
}

func (e *DiedError) Error() string {
	return fmt.Sprintf("vm: ended without an exit code (qemu: %v); the console's last lines:\n%s\nvirtiofsd:\n%s", e.Err, e.Console, e.Files)
}

func (e *DiedError) Unwrap() error { return e.Err }

// Run boots the guest, runs command in its shell as root, copies both of its
// streams to out while they come, and returns its exit code when the guest is
// off. A DiedError says that the guest did not come as far as that; one that died
// before it said anything has been booted twice. When ctx ends the guest is killed.
// Nothing is left behind; when this process is killed, a folder that the next run
// removes.
func (m Machine) Run(ctx context.Context, command string, out io.Writer) (int, error) {
	first := &counter{to: out}
	code, err := m.boot(ctx, command, first)
	if _, ok := errors.AsType[*DiedError](err); ok && first.bytes == 0 {
		return m.boot(ctx, command, out)
	}
	return code, err
}

// counter counts what it passes on.
type counter struct {
	to    io.Writer
	bytes int
}

func (c *counter) Write(p []byte) (int, error) {
	c.bytes += len(p)
	return c.to.Write(p)
}

func (m Machine) boot(ctx context.Context, command string, out io.Writer) (int, error) {
	if err := Check(); err != nil {
		return 0, err
	}
	sweep()
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%d-", folderPrefix, os.Getpid()))
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	initrd, script := filepath.Join(dir, "initrd"), filepath.Join(dir, "command")
	if err := writeInitrd(ctx, initrd, m.Tree); err != nil {
		return 0, err
	}
	if err := os.WriteFile(script, []byte(m.script(command)), 0o755); err != nil {
		return 0, err
	}
	images, err := filepath.Glob(filepath.Join(m.Tree, "boot", "vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return 0, fmt.Errorf("%s: %d kernel images, want 1", m.Tree, len(images))
	}

	// The children die with the thread that started them (Pdeathsig): keep it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	stop, err := startFiles(ctx, filepath.Join(dir, "fs"), filepath.Join(dir, "fs.log"))
	if err != nil {
		return 0, err
	}
	defer stop()
	copied, stopCopy, err := listen(filepath.Join(dir, "out"), out)
	if err != nil {
		return 0, err
	}
	defer stopCopy()
	console := &tail{}
	cmd := qemu(ctx, dir, images[0], initrd, script)
	cmd.Stdout, cmd.Stderr = console, console
	if m.Console != nil {
		cmd.Stdout = io.MultiWriter(console, m.Console)
		cmd.Stderr = cmd.Stdout
	}
	runErr := cmd.Run()
	if runErr == nil {
		<-copied // the guest is off: what it wrote is on its way
	}
	if ctx.Err() != nil {
		return 0, fmt.Errorf("vm: %w; the console's last lines:\n%s", context.Cause(ctx), console)
	}
	text, _ := os.ReadFile(filepath.Join(dir, "exit"))
	code, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if runErr == nil {
		runErr = err
	}
	if runErr != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "fs.log"))
		return 0, &DiedError{Err: runErr, Console: console.String(), Files: string(log)}
	}
	return code, nil
}

// folderPrefix comes before the process id in the name of a run's folder.
const folderPrefix = "netemd-vm-"

// sweep removes the folders of runs that were killed.
func sweep() {
	found, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPrefix+"*-*"))
	for _, d := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(d), folderPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(d)
		}
	}
}

// script is what the guest's first process runs: the command in its environment.
func (m Machine) script(command string) string {
	var b strings.Builder
	for _, kv := range append([]string{"HOME=" + home(), "PATH=" + os.Getenv("PATH"), "LC_ALL=C.UTF-8"}, m.Env...) {
		name, value, _ := strings.Cut(kv, "=")
		fmt.Fprintf(&b, "export %s=%s\n", name, quote(value))
	}
	if m.Dir != "" {
		fmt.Fprintf(&b, "cd %s || exit 125\n", quote(m.Dir))
	}
	return b.String() + command + "\n"
}

func home() string {
	if h := os.Getenv("HOME"); h != "" {
		return h
	}
	return "/root"
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func qemu(ctx context.Context, dir, kernel, initrd, script string) *exec.Cmd {
	accel, cpu := "tcg,thread=multi", "max"
	if os.Getenv(AccelEnv) == "kvm" {
		accel, cpu = "kvm", "host"
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64",
		"-accel", accel, "-cpu", cpu, "-smp", "2", "-m", strconv.Itoa(memoryMB),
		"-nographic", "-no-reboot", "-nodefaults", "-no-user-config", "-nic", "none",
		"-object", fmt.Sprintf("memory-backend-memfd,id=mem,size=%dM,share=on", memoryMB), "-numa", "node,memdev=mem",
		"-chardev", "socket,id=fs,path="+filepath.Join(dir, "fs"), "-device", "vhost-user-fs-pci,chardev=fs,tag=hostroot",
		"-serial", "stdio",
		"-device", "virtio-serial-pci",
		"-chardev", "socket,id=out,path="+filepath.Join(dir, "out"), "-device", "virtserialport,chardev=out,name=out",
		"-chardev", "file,id=exit,path="+filepath.Join(dir, "exit"), "-device", "virtserialport,chardev=exit,name=exit",
		"-device", "virtio-rng-pci",
		"-kernel", kernel, "-initrd", initrd,
		// tsc=reliable: a watchdog that finds two emulated clocks apart turns the key of
		// sched_clock under the feet of the other processor, which kills the guest.
		"-append", "console=ttyS0 panic=-1 quiet mitigations=off tsc=reliable netemd.command="+script,
	)
	child(cmd)
	return cmd
}

// startFiles starts virtiofsd on the host's root and waits for its socket.
// Debian 12 has the one that came with QEMU, later releases its successor, whose
// options differ.
func startFiles(ctx context.Context, socket, log string) (stop func(), err error) {
	prog, err := virtiofsd()
	if err != nil {
		return nil, err
	}
	args := []string{"--socket-path=" + socket, "-o", "source=/", "-o", "cache=always", "-o", "sandbox=chroot"}
	if filepath.Dir(prog) != oldVirtiofsd {
		args = []string{"--socket-path=" + socket, "--shared-dir=/", "--cache=always", "--sandbox=chroot"}
	}
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, prog, args...)
	cmd.Stdout, cmd.Stderr = f, f
	child(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("virtiofsd: %w", err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	// It serves one guest and ends when that guest is gone; the kill is for the rest.
	stop = func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); <-ended }
	for range 100 {
		if _, err := os.Stat(socket); err == nil {
			return stop, nil
		}
		select {
		case <-ended:
			text, _ := os.ReadFile(log)
			return nil, fmt.Errorf("virtiofsd: ended at once: %s", text)
		case <-time.After(50 * time.Millisecond):
		}
	}
	stop()
	return nil, errors.New("virtiofsd: no socket within 5s")
}

// child puts cmd into a process group of its own, which is killed as a whole when
// its context ends, and with this process at the latest.
func child(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
}

// listen copies what the first caller of the unix socket path sends to w; copied
// is closed at its end.
func listen(path string, w io.Writer) (copied <-chan struct{}, stop func(), err error) {
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.Copy(w, conn)
	}()
	return done, func() { l.Close() }, nil
}

// tail keeps the last few kilobytes that were written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	const limit = 4096
	t.b = append(t.b, p...)
	if n := len(t.b); n > limit {
		t.b = slices.Clone(t.b[n-limit:])
	}
	return len(p), nil
}

func (t *tail) String() string { return strings.ReplaceAll(string(t.b), "\r", "") }
