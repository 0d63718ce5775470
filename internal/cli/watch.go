package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/client"
	"netemd/internal/fault"
)

// eventView is an event as JSON.
type eventView struct {
	// Number counts the events of Life, which names one life of the agent.
	Number uint64    `json:"number"`
	Life   string    `json:"life"`
	Time   time.Time `json:"time"`
	// MonotonicNS is CLOCK_MONOTONIC of the agent's machine.
	MonotonicNS int64     `json:"monotonic_ns"`
	Event       string    `json:"event"`
	Owner       string    `json:"owner"`
	Fault       faultView `json:"fault"`
}

func (a *app) watch() *cobra.Command {
	var after uint64
	var life string
	cmd := &cobra.Command{
		Use: "watch [--after N --life NAME]", Short: "Tell what happens to faults, until interrupted", DisableFlagsInUseLine: true,
		Long: `Tell what happens to faults, until interrupted: applied, changed, renewed, step, expired,
cleared, lost, drifted, repaired, reattached; of services that are made to fail down, up, ready,
skipped and failed. Events are numbered, and -o jsonl has the number and the
agent's life beside each: with both of the last one that was seen, --after and --life go on
there, and miss none. The agent keeps some thousand events; it is an error (exit code 1)
when some after N are no longer kept, or are of another life of the agent.`,
		Args: arguments(0, ""), ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().Var(typed(&after, "N", unsigned[uint64](64, 0), nil), "after", "go on after the event with this number")
	cmd.Flags().Var(once(&life, "NAME", "the life that stands beside the number"), "life", "`NAME` of the agent's life that gave the number")
	completeWords(cmd, "life", nil)
	cmd.RunE = a.do(func(cmd *cobra.Command, _ []string) error {
		switch {
		case a.output == outJSON:
			return fault.WithHint(usageError{errors.New("watch: a stream is no single document")}, "use -o jsonl")
		case cmd.Flags().Changed("after") != (life != ""):
			return fault.WithHint(usageError{errors.New("watch: want --after and --life together")}, "both stand in each line of 'netemctl watch -o jsonl'")
		}
		agent, err := a.dial()
		if err != nil {
			return err
		}
		defer agent.Close()
		var last fault.Event
		err = agent.Watch(cmd.Context(), after, life, func(e fault.Event) {
			last = e
			a.emitEvent(e)
		})
		switch {
		case errors.Is(err, fault.ErrMissed):
			return fault.WithHint(err, "list again: 'netemctl list' says what stands, 'netemctl watch' goes on from now")
		case errors.Is(err, client.ErrStopped): // the next agent's life is another one
			return fault.WithHint(err, "its faults have ended, or were handed over (netemd --keep); what the next agent does, another 'netemctl watch' tells")
		case errors.Is(err, client.ErrUnreachable) && last.Number > 0:
			return fault.WithHint(err, fmt.Sprintf("go on with: netemctl watch --after %d --life %s", last.Number, last.Life))
		}
		return err
	})
	return cmd
}

func (a *app) emitEvent(e fault.Event) {
	now := a.env.Now()
	if a.output == outJSONL {
		enc := json.NewEncoder(a.out)
		enc.SetEscapeHTML(false)
		// A reader that went away ends the watch by its signal.
		_ = enc.Encode(eventView{
			Number: e.Number, Life: e.Life, Time: e.Time, MonotonicNS: e.Monotonic, Event: e.Kind, Owner: e.Fault.Spec.Owner, Fault: viewFault(e.Fault, now),
		})
		return
	}
	s := a.style(a.env.StdoutTerminal)
	if text := strikeText(e, now); text != "" {
		fmt.Fprintf(a.out, "%s  %-8s  %s  %s\n", e.Time.In(now.Location()).Format("15:04:05.000"), e.Kind, s.bold(e.Fault.ID), text)
		return
	}
	fmt.Fprintf(a.out, "%s  %-8s  %s  %s%s%s\n",
		e.Time.In(now.Location()).Format("15:04:05.000"), e.Kind, s.bold(e.Fault.ID), words(e.Fault.Spec), s.soft(by(e.Fault.Spec.Owner)), because(e.Fault.Reason))
}

// by says whose a fault is.
func by(owner string) string {
	if owner == "" {
		return ""
	}
	return ", by " + owner
}
