package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
)

// statsView is a fault's counters as JSON; null is what the engine cannot tell.
type statsView struct {
	ID         string       `json:"id"`
	Target     string       `json:"target"`
	State      fault.State  `json:"state"`
	Engine     fault.Engine `json:"engine"`
	Seen       *uint64      `json:"seen_packets"`
	Lost       *uint64      `json:"lost_packets"`
	Overflow   *uint64      `json:"overflow_packets"`
	Late       *uint64      `json:"late_packets"`
	Refused    *uint64      `json:"refused_packets"`
	Delayed    *uint64      `json:"delayed_packets"`
	Duplicated *uint64      `json:"duplicated_packets"`
	Reordered  *uint64      `json:"reordered_packets"`
	Corrupted  *uint64      `json:"corrupted_packets"`
	Opened     *uint64      `json:"opened_packets"`
	// Queued are held by the fault now; all others are counted since it began.
	Queued *uint64 `json:"queued_packets"`
	// Requests are those of a fault of requests, which has no packets.
	*requestCounters
}

func viewStats(f fault.Fault) statsView {
	told := func(name string, n uint64) *uint64 {
		if !f.Spec.OnPackets() || slices.Contains(f.CountersMissing, name) {
			return nil
		}
		return &n
	}
	c := f.Counters
	v := statsView{
		ID: f.ID, Target: subject(f.Spec), State: f.State, Engine: f.Engine,
		Seen: told("seen", c.Seen), Lost: told("lost", c.Lost), Overflow: told("overflow", c.Overflow),
		Late: told("late", c.Late), Refused: told("refused", c.Refused),
		Delayed: told("delayed", c.Delayed), Duplicated: told("duplicated", c.Duplicated),
		Reordered: told("reordered", c.Reordered), Corrupted: told("corrupted", c.Corrupted), Opened: told("opened", c.Opened),
		Queued: told("queued", f.Queued),
	}
	if f.Spec.Request != nil {
		v.requestCounters = viewRequests(c)
	}
	return v
}

// statsData is what stats answers.
type statsData struct {
	Faults []statsView `json:"faults"`
}

func (a *app) stats() *cobra.Command {
	cmd := &cobra.Command{
		Use: "stats [ID]", Short: "Count what happened to the packets", DisableFlagsInUseLine: true,
		Long: `Count what happened to the packets of each packet fault, or of one, since it was
applied or last changed, also those that a verification sent. OVERFLOW is what a full
queue dropped, which is no loss that was asked for; LATE was thrown away, the engine
having stood still; REFUSED was not taken by the device, as too long for it; OPENED passed unimpaired because
the engine was late; QUEUED are held at this moment. A dash is what the engine cannot
tell. What 'drop' chose is in LOST and what 'hold' did in DELAYED; 'netemctl packets'
names each. Of faults of requests ('netemctl app') the requests are counted, in a table of
their own.`,
		ValidArgsFunction: a.completeFaults,
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		return arguments(min(len(args), 1), "[ID]")(cmd, args)
	}
	cmd.RunE = a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
		fs, err := statsOf(cmd.Context(), agent, args)
		if err != nil {
			return err
		}
		data := statsData{Faults: []statsView{}}
		for _, f := range fs {
			data.Faults = append(data.Faults, viewStats(f))
		}
		return a.emit(answer{kind: "stats", data: data, lines: anys(data.Faults), table: func(w io.Writer, s style) {
			if len(data.Faults) == 0 {
				a.say("no fault that counts packets or requests")
				return
			}
			statsTables(w, data.Faults, s)
		}})
	})
	return cmd
}

// statsOf returns the fault that args names, or all packet faults.
func statsOf(ctx context.Context, agent Agent, args []string) ([]fault.Fault, error) {
	if len(args) == 0 {
		fs, err := agent.List(ctx)
		return slices.DeleteFunc(fs, func(f fault.Fault) bool { return !f.Spec.OnPackets() && f.Spec.Request == nil }), err
	}
	f, err := agent.Get(ctx, args[0])
	if err == nil && !f.Spec.OnPackets() && f.Spec.Request == nil {
		err = fmt.Errorf("stats %s: a fault of the proxy counts no packets", f.ID)
	}
	return []fault.Fault{f}, err
}

// statsTables has the faults of packets, and below those of requests.
func statsTables(w io.Writer, vs []statsView, s style) {
	packets := slices.DeleteFunc(slices.Clone(vs), func(v statsView) bool { return v.requestCounters != nil })
	if len(packets) > 0 {
		statsTable(packets, s).write(w, s)
	}
	if len(packets) == len(vs) {
		return
	}
	if len(packets) > 0 {
		fmt.Fprintln(w)
	}
	t := &table{head: []string{"ID", "TARGET", "STATE", "REQUESTS", "ERRORS", "DELAYED", "ABORTED", "OPENED"}, right: map[int]bool{3: true, 4: true, 5: true, 6: true, 7: true}}
	for _, v := range vs {
		if c := v.requestCounters; c != nil {
			t.add(s.bold(v.ID), v.Target, paintState(s, v.State), fmt.Sprint(c.Seen), fmt.Sprint(c.Errors), fmt.Sprint(c.Delayed), fmt.Sprint(c.Aborted), fmt.Sprint(c.Opened))
		}
	}
	t.write(w, s)
}

func statsTable(vs []statsView, s style) *table {
	t := &table{
		head:  []string{"ID", "TARGET", "STATE", "SEEN", "LOST", "OVERFLOW", "LATE", "REFUSED", "DELAYED", "DUPLICATED", "REORDERED", "CORRUPTED", "OPENED", "QUEUED"},
		right: map[int]bool{3: true, 4: true, 5: true, 6: true, 7: true, 8: true, 9: true, 10: true, 11: true, 12: true, 13: true},
	}
	for _, v := range vs {
		t.add(s.bold(v.ID), v.Target, paintState(s, v.State), countText(v.Seen), countText(v.Lost), countText(v.Overflow),
			countText(v.Late), countText(v.Refused), countText(v.Delayed), countText(v.Duplicated), countText(v.Reordered), countText(v.Corrupted), countText(v.Opened), countText(v.Queued))
	}
	return t
}

// countText is a dash for what is not known.
func countText(n *uint64) string {
	if n == nil {
		return "-"
	}
	return fmt.Sprint(*n)
}
