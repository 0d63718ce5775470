package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"netemd/namespaces"
)

// errNoNamespace is returned for a namespace that does not exist.
var errNoNamespace = errors.New("no such namespace")

// Exit codes of shells for a command that could not be started, and the base of
// those for one that a signal ended.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignal        = 128
)

// RunCommand runs c and returns its exit code, 128 + n for one that signal n
// ended. Signals that netemctl gets go on to it, except those that a terminal
// sends to both by itself; ctx's end alone does not end it. The command stays in
// netemctl's group, so that a kill of the group ends all; what else somebody sends to the
// whole group it has twice, since nothing tells that from a signal to netemctl alone. What
// stops and continues them, and the terminal's size, is the whole group's, as below env or
// timeout: a fault that is held ends by its time to live when both are stopped for longer. The caller hears of
// a command that could not be started by the codes 126 and 127 of shells, and the
// user on Stderr. A namespace needs root.
func RunCommand(ctx context.Context, c Command) (int, error) {
	cmd := exec.CommandContext(context.WithoutCancel(ctx), c.Argv[0], c.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	if len(c.Env) > 0 {
		cmd.Env = append(cmd.Environ(), c.Env...)
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, forwarded...)
	defer signal.Stop(signals)
	if err := start(cmd, c.Namespace); err != nil {
		return startFailed(c, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			if (sig == syscall.SIGINT || sig == syscall.SIGQUIT) && foreground() {
				continue // the terminal gave it to both
			}
			// It fails only if the command has just ended.
			_ = cmd.Process.Signal(sig)
		case err := <-done:
			return ended(cmd, err)
		}
	}
}

// FindCommand looks a command up as a shell does: 127 when there is none of that name, 126
// when it may not be run.
func FindCommand(name string) (int, error) {
	switch _, err := exec.LookPath(name); {
	case err == nil:
		return 0, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return exitNotFound, errors.New("command not found")
	default:
		return exitNotExecutable, unwrapped(err)
	}
}

// unwrapped is the system's own word of an error.
func unwrapped(err error) error {
	if e := (*exec.Error)(nil); errors.As(err, &e) {
		return e.Err
	}
	return err
}

// forwarded are the signals that a command hears through netemctl.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2}

func start(cmd *exec.Cmd, namespace string) error {
	if namespace == "" {
		return cmd.Start()
	}
	n, err := namespaces.Open(namespace)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w %s", errNoNamespace, namespace)
	}
	if err != nil {
		return err
	}
	err = n.StartShown(cmd)
	if errors.Is(err, namespaces.ErrSysfs) {
		fmt.Fprintf(cmd.Stderr, "netemctl: /sys shows the host's devices: %v\n", err)
		err = n.Start(cmd)
	}
	return errors.Join(err, n.Close())
}

func startFailed(c Command, err error) (int, error) {
	var path *fs.PathError
	switch {
	case errors.Is(err, exec.ErrNotFound), errors.As(err, &path) && path.Op == "fork/exec" && errors.Is(err, fs.ErrNotExist):
		fmt.Fprintf(c.Stderr, "netemctl: %s: command not found\n", c.Argv[0])
		return exitNotFound, nil
	case errors.As(err, &path) && path.Op == "fork/exec":
		fmt.Fprintf(c.Stderr, "netemctl: %s: %v\n", c.Argv[0], path.Err)
		return exitNotExecutable, nil
	}
	return 0, err
}

func ended(cmd *exec.Cmd, err error) (int, error) {
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exitSignal + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// StaleNamespaces lists the files in /run/netns that are no namespace.
func StaleNamespaces() ([]string, error) { return namespacesThat(true) }

// Namespaces lists the named network namespaces.
func Namespaces() ([]string, error) { return namespacesThat(false) }

func namespacesThat(stale bool) ([]string, error) {
	entries, err := namespaces.List()
	var names []string
	for _, e := range entries {
		if e.Stale == stale {
			names = append(names, e.Name)
		}
	}
	return names, err
}

// Devices lists the network devices of a named namespace, which needs root, or of the
// process's own if that is empty.
func Devices(namespace string) ([]string, error) {
	var names []string
	list := func() error {
		interfaces, err := net.Interfaces()
		for _, i := range interfaces {
			names = append(names, i.Name)
		}
		return err
	}
	if namespace == "" {
		err := list()
		return names, err
	}
	n, err := namespaces.Open(namespace)
	if err != nil {
		return nil, err
	}
	err = n.Do(context.Background(), list)
	return names, errors.Join(err, n.Close())
}

// LookupHost returns all addresses of a host, of both families.
func LookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
