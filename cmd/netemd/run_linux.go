package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os/signal"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"netemd/internal/agent"
	"netemd/internal/child"
	"netemd/internal/config"
	"netemd/internal/fault"
	"netemd/internal/version"
	"netemd/qdisc"
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
  netemd [--config FILE] [--state-dir DIR] [--socket PATH] [--keep] [--log-level LEVEL]
  netemd cleanup [same flags]          remove what a killed agent left: faults, labs, services, socket
  netemd config check [FILE]           say what is wrong with a configuration
  netemd config show [same flags]      what is in force, as a configuration
  netemd version

Flags win over the configuration. Paths that do not begin with a / are below the folder that
one is in; in the configuration they are refused.

Signals: TERM, INT and HUP clear everything, or hand it over (--keep); QUIT is for an agent that
hangs: it says where, and ends as after KILL, so that the next start or cleanup clears.

Exit codes: 0 stopped, 2 the flags or the configuration are wrong, 7 not allowed, 1 the rest.

Flags:
`

// run is main without the process around it; it returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	what := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	switch what {
	case "", "cleanup":
	case "config":
		return configure(args, stdout, stderr)
	case "version":
		if len(args) > 0 {
			fmt.Fprintf(stderr, "netemd: unknown argument %q; version has none\n", args[0])
			return exitUsage
		}
		fmt.Fprintln(stdout, "netemd", version.String())
		return exitOK
	default:
		fmt.Fprintf(stderr, "netemd: unknown argument %q; known: cleanup, config, version\n", what)
		return exitUsage
	}
	f, code, done := parse(args, stderr)
	if done {
		return code
	}
	if len(f.args) > 0 {
		fmt.Fprintf(stderr, "netemd: unknown argument %q; known: cleanup, config, version\n", f.args[0])
		return exitUsage
	}
	var settings config.File
	var err error
	if what == "cleanup" {
		var unsound error
		if settings, unsound, err = f.cleanupSettings(); unsound != nil {
			report(stderr, unsound)
			if err == nil {
				fmt.Fprintf(stderr, "cleanup goes on without the configuration, in %s\n", settings.StateDir)
			}
		}
	} else {
		settings, err = f.settings()
	}
	if err != nil {
		return max(report(stderr, err), exitUsage)
	}
	cfg := agent.Config{Settings: settings.Config, Log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: f.level}))}
	signal.Ignore(syscall.SIGPIPE) // whoever read the log may have gone
	ctx, stop := untilSignal(context.Background())
	defer stop()
	if what == "cleanup" {
		return report(stderr, settings.Explain(clean(ctx, cfg, stdout)))
	}
	return report(stderr, settings.Explain(serve(ctx, cfg)))
}

func serve(ctx context.Context, cfg agent.Config) error {
	if err := child.KeepInherited(); err != nil {
		return err
	}
	agent.RaiseProcs()
	var a *agent.Agent
	cfg.Ready = func() { ready(ctx, a, cfg.Log) }
	cfg.Stopping = func() { notify(daemon.SdNotifyStopping, cfg.Log) }
	a, err := agent.New(ctx, cfg)
	if err != nil {
		return err
	}
	reduce(cfg.Log)
	return a.Serve(ctx)
}

// reduce gives up what a started agent does not need. It serves all the same where that
// fails, as in a container that lacks the privilege to do so.
func reduce(log *slog.Logger) {
	kept, missing, err := agent.ReducePrivileges()
	if err != nil {
		log.Warn("the privileges of root could not be reduced", "err", err)
		return
	}
	log.Info("privileges reduced", "kept", strings.Join(kept, " "))
	if len(missing) > 0 {
		log.Warn("privileges are missing that some faults or labs need", "missing", strings.Join(missing, " "))
	}
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

// report prints err and its hint, and returns the exit code for it. Each mistake of a
// configuration is a line.
func report(stderr io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintln(stderr, "netemd:", strings.TrimSuffix(line, "\n"))
	}
	if hint := fault.HintOf(err); hint != "" {
		fmt.Fprintln(stderr, "hint:", hint)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		return exitDenied
	case errors.Is(err, qdisc.ErrInvalid):
		return exitUsage
	}
	return exitError
}
