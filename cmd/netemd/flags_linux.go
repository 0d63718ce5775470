package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"

	"netemd/internal/config"
	"netemd/qdisc"
)

// flags are what the command line says beside the configuration.
type flags struct {
	config, stateDir, socket string
	keep                     bool
	level                    slog.Level
	args                     []string
}

// parse reads the flags; code is what to exit with when there is nothing more to do. A path
// that is empty is refused: it is mostly a variable that nobody set, and without it another
// agent would be meant.
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
	fl.Visit(func(set *flag.Flag) {
		if _, isPath := wantOf[set.Name]; isPath && set.Value.String() == "" {
			code, done = report(stderr, &qdisc.FieldError{Field: "--" + set.Name, Want: "a path, not an empty text"}), true
		}
	})
	f.args = fl.Args()
	return f, code, done
}

// wantOf are the flags that are paths, and the keys of the configuration that they win over.
var wantOf = map[string]string{"config": "", "state-dir": "state_dir", "socket": "socket.path"}

// settings are the configuration with what the flags say instead.
func (f flags) settings() (config.File, error) {
	file, err := config.Load(f.config)
	if err != nil {
		return file, err
	}
	return f.over(file)
}

// cleanupSettings are settings, or the defaults with what the flags say where the
// configuration is of no use: what is left in the kernel has to go all the same. unsound says
// what is wrong with it then.
func (f flags) cleanupSettings() (c config.File, unsound, err error) {
	if c, unsound = f.settings(); unsound == nil {
		return c, nil, nil
	}
	c, err = f.over(config.File{Config: config.Default()})
	return c, unsound, err
}

// over is c with what the flags say instead.
func (f flags) over(c config.File) (config.File, error) {
	for _, p := range []struct {
		flag, value string
		to          *string
	}{{"state-dir", f.stateDir, &c.StateDir}, {"socket", f.socket, &c.Socket.Path}} {
		if p.value == "" {
			continue
		}
		path, err := filepath.Abs(p.value)
		if err != nil {
			return c, fmt.Errorf("--%s: %w", p.flag, err)
		}
		*p.to = path
	}
	c.Keep = c.Keep || f.keep
	return c, f.said(c.Validate())
}

// said names the flag in place of the key that it won over: the configuration was sound.
func (f flags) said(err error) error {
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // Validate's own
	if !ok {
		return err
	}
	var errs []error
	for _, err := range joined.Unwrap() {
		m, ok := errors.AsType[*config.Mistake](err)
		given := map[string]string{"state-dir": f.stateDir, "socket": f.socket}
		for name, value := range given {
			if ok && value != "" && wantOf[name] == m.Key {
				err = &qdisc.FieldError{Field: "--" + name, Value: value, Want: m.Want}
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
