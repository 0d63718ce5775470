package cli

import (
	"context"
	"io"
	"time"

	"netemd/internal/client"
	"netemd/internal/content"
	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/fidelity"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/profile"
	"netemd/internal/target"
	"netemd/probe"
	"netemd/qdisc"
)

// Env is the outside world of a command.
type Env struct {
	// Args are the arguments without the program's name.
	Args   []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Getenv looks up an environment variable; "" when it is not set.
	Getenv func(string) string
	// StdoutTerminal and StderrTerminal say which of them a person looks at.
	StdoutTerminal, StderrTerminal bool
	// Now is the clock; its location is the user's.
	Now func() time.Time
	// Dial connects to an agent.
	Dial func(e client.Endpoint) (Agent, error)
	// Command runs a command, in the named namespace if that is not empty.
	Command func(ctx context.Context, c Command) (exitCode int, err error)
	// Group runs a command that ends with all that it started: when it does, and when ctx does.
	Group func(ctx context.Context, c Command) (exitCode int, err error)
	// FindCommand says whether there is a command of that name that may be run here: the
	// exit code that a shell has when there is not, 0 when there is, and why.
	FindCommand func(name string) (exitCode int, err error)
	// StaleNamespaces lists files in /run/netns that are no namespace.
	StaleNamespaces func() ([]string, error)
	// Namespaces lists the named network namespaces, and Devices the network devices
	// in one of them, which needs root, or in netemctl's own if that is empty.
	Namespaces func() ([]string, error)
	Devices    func(namespace string) ([]string, error)
	// LookupHost returns all addresses of a host.
	LookupHost target.Lookup
	// SSHConnection is SSH_CONNECTION of the user's ssh session, "" outside of one.
	SSHConnection func() string
}

// Command is a process that netemctl runs for the user, with its own standard
// streams.
type Command struct {
	// Namespace is the named network namespace; empty is netemctl's own.
	Namespace string
	Argv      []string
	// Env are variables, NAME=VALUE, beside those of netemctl.
	Env    []string
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

// Agent is what netemctl needs of netemd.
type Agent interface {
	experiment.Applier
	experiment.Faults
	ProbeRunner
	FaultStore
	PacketStore
	TargetStore
	LabStore
	System
	io.Closer
}

// ProbeRunner runs one probe with all that it can do.
type ProbeRunner interface {
	RunProbe(ctx context.Context, r probe.Request, run client.ProbeRun) (probe.Result, error)
}

// FaultStore is the rest of the faults' service.
type FaultStore interface {
	FaultReader
	Change(ctx context.Context, id string, p qdisc.Patch) (fault.Fault, error)
	Renew(ctx context.Context, id string, ttl time.Duration) (fault.Fault, error)
	Verify(ctx context.Context, id string, o fidelity.Options, progress func(sent, packets int)) (fidelity.Result, error)
}

// FaultReader looks at faults.
type FaultReader interface {
	Get(ctx context.Context, id string) (fault.Fault, error)
	List(ctx context.Context) ([]fault.Fault, error)
	Watch(ctx context.Context, after uint64, life string, event func(fault.Event)) error
	WatchFrom(ctx context.Context, after uint64, life string, begun func(), event func(fault.Event)) error
}

// PacketStore knows which packets a fault chose.
type PacketStore interface {
	Packets(ctx context.Context, id string, follow bool, f func(content.Log)) error
}

// TargetStore knows the targets.
type TargetStore interface {
	Targets(ctx context.Context) ([]target.Target, error)
	Resolve(ctx context.Context, name string) (target.Target, error)
	AddTarget(ctx context.Context, d target.Definition) (target.Target, error)
	RemoveTarget(ctx context.Context, name string, force bool) (cleared []fault.Fault, err error)
}

// LabStore makes labs.
type LabStore interface {
	LabUp(ctx context.Context, r labfile.Request, progress func(step string)) (lab.Info, error)
	Lab(ctx context.Context, name string) (info lab.Info, definition []byte, err error)
	LabDiff(ctx context.Context, r labfile.Request) ([]lab.Difference, error)
	LabDown(ctx context.Context, name string) (existed bool, err error)
	Labs(ctx context.Context) ([]lab.Info, error)
	// HoldLab tells lost, perhaps several times, why the lab is not what it was.
	HoldLab(ctx context.Context, r labfile.Request, progress func(step string), lost func(error)) (LabHold, error)
	LabServer(ctx context.Context, lab, service string, settings []byte, reset bool) (client.Server, error)
}

// System is about the agent and its kernel.
type System interface {
	Features(ctx context.Context) (feature.Report, error)
	Profiles(ctx context.Context) ([]profile.Profile, error)
	Version(ctx context.Context) (client.AgentVersion, error)
}

// remote is an agent at the other end of a connection.
type remote struct{ *client.Client }

// Hold gives what client.Client's gives.
func (r remote) Hold(ctx context.Context, s fault.Spec, notify func(e fault.Event, words string)) (experiment.Held, error) {
	h, err := r.Client.Hold(ctx, s, notify)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// HoldLab gives what client.Client's gives.
func (r remote) HoldLab(ctx context.Context, l labfile.Request, progress func(step string), lost func(error)) (LabHold, error) {
	h, err := r.Client.HoldLab(ctx, l, progress, lost)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Dial connects to an agent over a unix socket or TCP; see client.Open.
func Dial(e client.Endpoint) (Agent, error) {
	c, err := client.Open(e)
	if err != nil {
		return nil, err
	}
	return remote{c}, nil
}
