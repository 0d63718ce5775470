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
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/coreos/go-systemd/v22/daemon"

	"netemd/internal/agent"
	"netemd/internal/config"
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
  netemd [--config FILE] [--state-dir DIR] [--socket PATH] [--keep] [--log-level LEVEL]
  netemd cleanup [same flags]          remove what a killed agent left: faults, labs, services, socket
  netemd config check [FILE]           say what is wrong with a configuration
  netemd config show [same flags]      what is in force, as a configuration
  netemd version

Flags win over the configuration.

Flags:
`

// flags are what the command line says beside the configuration.
type flags struct {
	config, stateDir, socket string
	keep                     bool
	level                    slog.Level
	args                     []string
}

// parse reads the flags; code is what to exit with when there is nothing more to do.
func parse(args []string, stderr io.Writer) (f flags, code int, done bool) {
	fl := flag.NewFlagSet("netemd", flag.ContinueOnError)
	fl.SetOutput(stderr)
	fl.StringVar(&f.config, "config", "", "configuration `FILE` (default "+config.DefaultPath+", which may be missing)")
	fl.StringVar(&f.stateDir, "state-dir", "", "`DIR` for state that lives until the next boot (default /run/netemd)")
	fl.StringVar(&f.socket, "socket", "", "unix socket `PATH` (default DIR/netemd.sock)")
	fl.BoolVar(&f.keep, "keep", false, "hand faults and labs over a graceful stop to the next start")
	fl.TextVar(&f.level, "log-level", slog.LevelInfo, "debug, info, warn or error")
	fl.Usage = func() {
		fmt.Fprint(stderr, usage)
		fl.PrintDefaults()
	}
	switch err := fl.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return f, exitOK, true
	case err != nil:
		return f, exitUsage, true
	}
	f.args = fl.Args()
	return f, exitOK, false
}

// settings are the configuration with what the flags say instead.
func (f flags) settings() (config.Config, error) {
	c, err := config.Load(f.config)
	if err != nil {
		return c, err
	}
	return f.over(c)
}

// cleanupSettings are settings, or the defaults with what the flags say where the
// configuration is of no use: what is left in the kernel has to go all the same. unsound says
// what is wrong with it then.
func (f flags) cleanupSettings() (c config.Config, unsound, err error) {
	if c, unsound = f.settings(); unsound == nil {
		return c, nil, nil
	}
	c, err = f.over(config.Default())
	return c, unsound, err
}

// over is c with what the flags say instead.
func (f flags) over(c config.Config) (_ config.Config, err error) {
	if f.stateDir != "" {
		if c.StateDir, err = filepath.Abs(f.stateDir); err != nil {
			return c, fmt.Errorf("state folder: %w", err)
		}
	}
	if f.socket != "" {
		if c.Socket.Path, err = filepath.Abs(f.socket); err != nil {
			return c, fmt.Errorf("socket: %w", err)
		}
	}
	c.Keep = c.Keep || f.keep
	return c, c.Validate()
}

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
	var settings config.Config
	var err error
	if what == "cleanup" {
		var unsound error
		if settings, unsound, err = f.cleanupSettings(); unsound != nil {
			fmt.Fprintln(stderr, "netemd:", unsound)
			if err == nil {
				fmt.Fprintf(stderr, "cleanup goes on without the configuration, in %s\n", settings.StateDir)
			}
		}
	} else {
		settings, err = f.settings()
	}
	if err != nil {
		return report(stderr, err)
	}
	cfg := agent.Config{Settings: settings, Log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: f.level}))}
	signal.Ignore(syscall.SIGPIPE) // whoever read the log may have gone
	ctx, stop := untilSignal(context.Background())
	defer stop()
	if what == "cleanup" {
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
