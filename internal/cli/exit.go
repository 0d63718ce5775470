package cli

import (
	"context"
	"errors"
	"io/fs"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/probe"
	"netemd/qdisc"
)

// The exit codes, for scripts. With `-- CMD` the exit code is CMD's, or
// exitInconclusive when CMD succeeded beside a fault that was lost.
const (
	exitDone         = 0
	exitError        = 1
	exitUsage        = 2
	exitFailed       = 3
	exitInconclusive = 4
	exitUnreachable  = 5
	exitUnsupported  = 6
	exitDenied       = 7
	exitInterrupted  = 130
)

const exitCodesText = `Exit codes:
  0    done, or the verdict is "passed"
  1    error; a conflict and an unknown target too
  2    usage: a wrong flag, argument or value
  3    the verdict is "failed"
  4    the verdict is "inconclusive"
  5    the agent, netemd, cannot be reached
  6    not supported here
  7    denied
  130  interrupted, after undoing what was in progress; by SIGTERM 143, by SIGHUP 129
With "-- CMD" the exit code is CMD's, but of run, where it is the verdict's; 4 when CMD succeeded, but the fault was not in force to its end,
as when it outlasted --ttl, or in between without --repair or --reattach; when it let more than 1 % of its packets pass,
the engine being late; when no packet passed that it was aimed at; and when a rule chose no packet, or let
one pass. 126 and 127 are of a CMD that may not be run or does not exist; then there was no fault.`

// errInconclusive ends a command whose result must not be relied on; its reasons
// are told before.
var errInconclusive = errors.New("inconclusive")

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e usageError) Error() string { return e.err.Error() }
func (e usageError) Unwrap() error { return e.err }

// commandExit carries the exit code of the user's command.
type commandExit struct{ code int }

func (commandExit) Error() string { return "the command failed" }

// hintUnsupported says what would do instead of a fault that is not supported here.
func hintUnsupported(err error, spec fault.Spec) error {
	if !errors.Is(err, errors.ErrUnsupported) || !spec.OnPackets() {
		return err
	}
	if spec.Content != nil {
		return hintContent(err, spec)
	}
	lo := spec.Selector != nil && spec.Selector.Device == loopback
	if lo && spec.Direction == fault.From {
		return fault.WithHint(err, "write --direction egress: every packet of "+loopback+" passes it, the answers too")
	}
	return err
}

// hintContent does the same for a fault on chosen packets.
func hintContent(err error, spec fault.Spec) error {
	lo := spec.Selector != nil && spec.Selector.Device == loopback
	switch {
	case spec.Engine == fault.Netem:
		return fault.WithHint(err, "leave --engine out, or write --engine ebpf; beside a fault of netem on the same packets it works, too")
	case lo && spec.Direction == fault.From:
		return fault.WithHint(err, "write --direction egress: every packet of "+loopback+" passes it, the answers too")
	}
	return err
}

func exitCode(ctx context.Context, err error) int {
	var usage usageError
	var command commandExit
	switch {
	case err == nil:
		return exitDone
	case errors.As(err, &command):
		return command.code
	case ctx.Err() != nil:
		return interruptCode(ctx)
	case errors.As(err, &usage), errors.Is(err, qdisc.ErrInvalid), errors.Is(err, probe.ErrRequest):
		return exitUsage
	case errors.Is(err, errFailed):
		return exitFailed
	case errors.Is(err, errInconclusive):
		return exitInconclusive
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, fs.ErrPermission):
		return exitDenied
	case errors.Is(err, errors.ErrUnsupported):
		return exitUnsupported
	}
	return exitError
}
