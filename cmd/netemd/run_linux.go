package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os/signal"
	"runtime"
	"syscall"

	"netemd/internal/agent"
	"netemd/internal/fault"
	"netemd/internal/version"
)

// The exit codes, which netemctl uses too.
const (
	exitOK     = 0
	exitError  = 1
	exitUsage  = 2
	exitDenied = 7
)

const usage = `netemd impairs packets on this host at the order of netemctl.

Usage:
  netemd [--state-dir DIR] [--socket PATH] [--log-level LEVEL]
  netemd cleanup [--state-dir DIR]     remove what a killed agent left: faults, labs, services, socket
  netemd version

Flags:
`

// run is main without the process around it; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	cleanup := false
	if len(args) > 0 {
		switch args[0] {
		case "cleanup":
			cleanup, args = true, args[1:]
		case "version":
			fmt.Fprintln(stdout, "netemd", version.String())
			return exitOK
		}
	}
	var cfg agent.Config
	level := slog.LevelInfo
	fl := flag.NewFlagSet("netemd", flag.ContinueOnError)
	fl.SetOutput(stderr)
	fl.StringVar(&cfg.StateDir, "state-dir", "/run/netemd", "`DIR` for state that lives until the next boot")
	fl.StringVar(&cfg.Socket, "socket", "", "unix socket `PATH` (default DIR/netemd.sock)")
	fl.TextVar(&level, "log-level", level, "debug, info, warn or error")
	fl.Usage = func() {
		fmt.Fprint(stderr, usage)
		fl.PrintDefaults()
	}
	switch err := fl.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return exitOK
	case err != nil:
		return exitUsage
	case fl.NArg() > 0:
		fmt.Fprintf(stderr, "netemd: unknown argument %q; known: cleanup, version\n", fl.Arg(0))
		return exitUsage
	}
	cfg.Log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	signal.Ignore(syscall.SIGPIPE) // whoever read the log may have gone
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if cleanup {
		return report(stderr, clean(ctx, cfg, stdout))
	}
	return report(stderr, serve(ctx, cfg))
}

// minProcs is how many goroutines may run at once at least. The threads that beat
// the engine's heart and move its packets must find a free one as soon as they wake,
// on a machine with two CPUs too: without it a busy agent is late by 10 ms and more.
const minProcs = 8

func serve(ctx context.Context, cfg agent.Config) error {
	runtime.GOMAXPROCS(max(minProcs, runtime.NumCPU()+4))
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	return a.Serve(ctx)
}

func clean(ctx context.Context, cfg agent.Config, stdout io.Writer) error {
	removed, err := agent.Cleanup(ctx, cfg)
	for _, r := range removed {
		fmt.Fprintln(stdout, "removed", r)
	}
	if err == nil && len(removed) == 0 {
		fmt.Fprintln(stdout, "nothing to remove")
	}
	return err
}

// report prints err and its hint, and returns the exit code for it.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(stderr, "netemd:", err)
	if hint := fault.HintOf(err); hint != "" {
		fmt.Fprintln(stderr, "hint:", hint)
	}
	if errors.Is(err, fs.ErrPermission) {
		return exitDenied
	}
	return exitError
}
