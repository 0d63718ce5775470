package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"netemd/internal/experiment"
	plans "netemd/internal/experiment/plan"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/suite"
	"netemd/qdisc"
)

// commands refuses a command without a plan for it, and the other way round.
func (f runFlags) commands(all []plans.Plan) error {
	for _, p := range all {
		switch {
		case len(f.argv) > 0 && !p.Commands():
			return usageError{fault.WithHint(fmt.Errorf("run: the phases of %s are no command, so there is none to run", p.Name), "write in a plan of your own: phases: {control: command, fault: command, recovery: command}")}
		case len(f.argv) == 0 && p.Commands():
			return usageError{fault.WithHint(fmt.Errorf("run: the phases of %s are a command, and there is none", p.Name), "write: netemctl run FILE -- CMD")}
		}
	}
	if f.junit != "" && len(f.argv) == 0 {
		return usageError{fault.WithHint(errors.New("run: --junit is of a command"), "write: netemctl run FILE --junit FILE -- CMD")}
	}
	return nil
}

// planCommand runs the user's command in the phases of a plan.
type planCommand struct {
	app   *app
	agent Agent
	plan  plans.Plan
	argv  []string
	// junit is the path of a file that the command writes; empty without one.
	junit string
	// dir takes the output, a file for each run; empty: it is only shown.
	dir string
	// began is called before anything is shown.
	began func()
}

// errLimit ends a command that takes too long.
var errLimit = errors.New("the command reached its limit")

// Command shows what the command writes, each line behind the phase, on standard error.
func (c *planCommand) Command(ctx context.Context, r experiment.Round) (run experiment.CommandRun, err error) {
	c.began()
	shown := &prefixed{to: c.app.env.Stderr, prefix: "[" + roundText(r) + "] "}
	defer shown.end()
	var out io.Writer = shown
	if c.dir != "" {
		file, err := c.file(r)
		if err != nil {
			return run, err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = io.MultiWriter(shown, file)
	}
	variables, namespace, err := c.world(ctx, r)
	if err != nil {
		return run, err
	}
	command := Command{Namespace: namespace, Argv: c.argv, Env: variables, Stdout: out, Stderr: out}
	var events *suite.GoTest
	if suite.IsGoTest(c.argv) {
		events = &suite.GoTest{Out: out}
		command.Argv, command.Stdout = suite.WithJSON(c.argv), events
	}
	limited, cancel := context.WithTimeoutCause(ctx, c.plan.Command.Limit, errLimit)
	defer cancel()
	run.Began = time.Now()
	run.Exit, err = c.app.env.Group(limited, command)
	run.Ended = time.Now()
	if errors.Is(err, errLimit) {
		fmt.Fprintf(out, "netemctl: the command was killed at its limit of %s\n", qdisc.FormatDuration(c.plan.Command.Limit))
		run.Exit, err = experiment.LimitExit, nil
	}
	switch {
	case err != nil:
	case events != nil:
		run.Tests = events.Tests()
	case c.junit != "":
		run.Tests, err = readJUnit(c.junit, run.Began)
		if err != nil { // the command's code stands for itself
			fmt.Fprintf(out, "netemctl: %v\n", err)
			run.Tests, err = nil, nil
		}
	}
	return run, err
}

// roundText is when a command runs, in words.
func roundText(r experiment.Round) string {
	if r.Repeat == 0 {
		return r.Case + " " + r.Phase
	}
	return fmt.Sprintf("%s %s %d", r.Case, r.Phase, r.Repeat)
}

// file is what takes the output of a run.
func (c *planCommand) file(r experiment.Round) (*os.File, error) {
	dir := filepath.Join(c.dir, "command")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, strings.ReplaceAll(strings.ReplaceAll(roundText(r), "/", "-"), " ", "-")+".log"))
	if err != nil {
		return nil, fmt.Errorf("run: %w", err)
	}
	return f, nil
}

// world is what the command finds: variables with the addresses of the lab, and the namespace.
func (c *planCommand) world(ctx context.Context, r experiment.Round) (variables []string, namespace string, err error) {
	say := func(name, value string) { variables = append(variables, "NETEMD_"+name+"="+value) }
	say("EXPERIMENT", c.plan.Name)
	say("CASE", r.Case)
	say("PHASE", r.Phase)
	say("REPEAT", strconv.Itoa(r.Repeat))
	say("SEED", strconv.FormatUint(r.Seed, 10))
	if r.Hold != "" {
		variables = append(variables, envHold+"="+r.Hold)
	}
	if c.plan.Lab == "" {
		return variables, "", nil
	}
	request, err := c.app.labRequest(ctx, c.plan.Lab, "")
	if err != nil {
		return nil, "", err
	}
	say("LAB", request.Name)
	info, _, err := c.agent.Lab(ctx, request.Name)
	if err != nil {
		return nil, "", err
	}
	for _, n := range info.Nodes {
		if n.Name == c.plan.Command.Node {
			namespace = n.Namespace
		}
		if len(n.Addresses) > 0 {
			say("NODE_"+variable(n.Name), n.Addresses[0].Addr().String())
		}
		for _, s := range n.Services {
			if s.Address.IsValid() {
				say("SERVICE_"+variable(s.Name), s.Address.String())
			}
		}
	}
	if c.plan.Command.Node != "" && namespace == "" {
		names := make([]string, len(info.Nodes))
		for i, n := range info.Nodes {
			names[i] = n.Name
		}
		return nil, "", &qdisc.FieldError{Field: "command.node", Value: c.plan.Command.Node, Want: "a node of the lab " + request.Name + ": " + strings.Join(names, ", ")}
	}
	if namespace == "" {
		return variables, "", nil
	}
	return variables, lab.Definition{Name: request.Name}.Namespace(c.plan.Command.Node), nil
}

// variable is a name as one of a variable: web-proxy is WEB_PROXY.
func variable(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

// readJUnit reads a file that was written since then.
func readJUnit(path string, since time.Time) ([]suite.Test, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("run: --junit: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("run: --junit: %w", err)
	}
	// File systems round times down, to a second at most.
	if info.ModTime().Before(since.Truncate(time.Second)) {
		return nil, fmt.Errorf("run: --junit: the command did not write %s", path)
	}
	return suite.JUnit(f)
}

// prefixed writes whole lines behind a prefix. It is safe for concurrent use.
type prefixed struct {
	to     io.Writer
	prefix string

	mu   sync.Mutex
	line []byte
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(b)
	for {
		line, rest, whole := bytes.Cut(b, []byte("\n"))
		p.line = append(p.line, line...)
		if !whole {
			return n, nil
		}
		if err := p.flush(); err != nil {
			return 0, err
		}
		b = rest
	}
}

func (p *prefixed) flush() error {
	_, err := fmt.Fprintf(p.to, "%s%s\n", p.prefix, p.line)
	p.line = p.line[:0]
	return err
}

// end writes what has no end of its line.
func (p *prefixed) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.line) > 0 {
		_ = p.flush()
	}
}
