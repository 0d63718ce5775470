//go:build linux

// Run boots a kernel that has sch_netem and runs a command in it:
//
//	run [-kernel 6.1|6.12] [-console] COMMAND
//
// The command sees this machine's files, read-only with a tmpfs over them, in the
// current folder, as root. The exit code is the command's; 125 says that the
// guest did not come up.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"netemd/test/vm"
)

func main() { os.Exit(run()) }

func run() int {
	series := flag.String("kernel", "6.12", "the kernel's `series`: 6.1 or 6.12")
	console := flag.Bool("console", false, "show the guest's kernel messages on standard error")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "run: no command (make vm CMD='tc -V' KERNEL=6.12)")
		return 2
	}
	k, err := vm.Lookup(*series)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	code, err := boot(ctx, k, strings.Join(flag.Args(), " "), *console)
	if err != nil {
		fmt.Fprintln(os.Stderr, "run:", err)
		return 125
	}
	return code
}

func boot(ctx context.Context, k vm.Kernel, command string, console bool) (int, error) {
	if err := vm.Check(); err != nil {
		return 0, err
	}
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	tree, err := k.Fetch(ctx, filepath.Join(dir, ".cache"))
	if err != nil {
		return 0, err
	}
	m := vm.Machine{Tree: tree, Dir: dir}
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "NETEMD_") || strings.HasPrefix(kv, "GO") {
			m.Env = append(m.Env, kv)
		}
	}
	if console {
		m.Console = os.Stderr
	}
	return m.Run(ctx, command, os.Stdout)
}
