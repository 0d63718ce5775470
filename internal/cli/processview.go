package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// outageView is an outage as JSON, with what it did so far; null is what has no end.
type outageView struct {
	Action        fault.OutageAction `json:"action"`
	Services      []string           `json:"services"`
	DownNS        int64              `json:"down_ns"`
	EveryNS       *int64             `json:"every_ns"`
	JitterPercent float64            `json:"jitter_percent"`
	Count         *int               `json:"count"`
	AtMost        int                `json:"at_most"`
	Seed          uint64             `json:"seed"`
	Run           *outageRunView     `json:"run"` // null in a dry run
}

type outageRunView struct {
	Done    int          `json:"done"`
	Skipped int          `json:"skipped"`
	Failed  int          `json:"failed"`
	Down    []string     `json:"down"`
	Next    *time.Time   `json:"next"`
	Over    bool         `json:"over"`
	Strikes []strikeView `json:"strikes"`
}

// strikeView is one outage. The monotonic times are of the clock of a probe's samples
// (CLOCK_MONOTONIC of the agent's machine).
type strikeView struct {
	Number           int        `json:"number"`
	Service          string     `json:"service"`
	Action           string     `json:"action"`
	Due              time.Time  `json:"due"`
	Down             *time.Time `json:"down"`
	Up               *time.Time `json:"up"`
	Ready            *time.Time `json:"ready"`
	DownMonotonicNS  *int64     `json:"down_monotonic_ns"`
	UpMonotonicNS    *int64     `json:"up_monotonic_ns"`
	ReadyMonotonicNS *int64     `json:"ready_monotonic_ns"`
	// OutageNS is from down to ready.
	OutageNS *int64 `json:"outage_ns"`
	PID      int    `json:"pid"`
	NewPID   int    `json:"new_pid"`
	Skipped  string `json:"skipped,omitempty"`
	Error    string `json:"error,omitempty"`
}

func viewOutage(o fault.Outage, run *fault.OutageRun) *outageView {
	v := &outageView{
		Action: o.Action, Services: o.Services, DownNS: int64(o.Down), JitterPercent: float64(o.Jitter), AtMost: o.Limit(), Seed: o.Seed,
	}
	if o.Every > 0 {
		v.EveryNS = new(int64(o.Every))
	}
	if n := o.Total(); n > 0 {
		v.Count = &n
	}
	if run == nil {
		return v
	}
	v.Run = &outageRunView{Done: run.Done, Skipped: run.Skipped, Failed: run.Failed, Down: list(run.Down), Over: run.Over, Strikes: []strikeView{}}
	if !run.Next.IsZero() {
		v.Run.Next = &run.Next
	}
	for _, s := range run.Strikes {
		one := strikeView{
			Number: s.Number, Service: s.Service, Action: string(s.Action), Due: s.Due, PID: s.PID, NewPID: s.NewPID, Skipped: s.Skipped, Error: s.Error,
		}
		one.Down, one.DownMonotonicNS = viewInstant(s.Down)
		one.Up, one.UpMonotonicNS = viewInstant(s.Up)
		one.Ready, one.ReadyMonotonicNS = viewInstant(s.Ready)
		if took := s.Took(); took > 0 {
			one.OutageNS = new(int64(took))
		}
		v.Run.Strikes = append(v.Run.Strikes, one)
	}
	return v
}

func viewInstant(i fault.Instant) (*time.Time, *int64) {
	if i.IsZero() {
		return nil, nil
	}
	return &i.Time, &i.Monotonic
}

// outageWords are an outage in one phrase, with its services.
func outageWords(o fault.Outage) string {
	if len(o.Services) == 1 {
		return strings.Replace(o.String(), string(o.Action), string(o.Action)+" "+o.Services[0], 1)
	}
	return o.String() + ": " + strings.Join(o.Services, ", ")
}

// shownStrikes is how many of the last are shown to people.
const shownStrikes = 20

// outageRows say what the outages of a fault did.
func outageRows(f fault.Fault, now time.Time) [][2]string {
	r := f.Outages
	if f.Spec.Outage == nil || r == nil {
		return nil
	}
	parts := []string{fmt.Sprint(r.Done)}
	if r.Of > 0 {
		parts[0] += fmt.Sprintf(" of %d", r.Of)
	}
	for _, p := range []struct {
		n    int
		what string
	}{{r.Skipped, "left out"}, {r.Failed, "after which the service was not back"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	did := strings.Join(parts, ", ")
	switch {
	case r.Over:
		did += "; all is over"
	case !r.Next.IsZero():
		did += fmt.Sprintf("; the next at %s", r.Next.In(now.Location()).Format("15:04:05.000"))
	}
	rows := [][2]string{{"outages", did}, {"down", strings.Join(r.Down, ", ")}}
	for _, s := range r.Strikes[max(0, len(r.Strikes)-shownStrikes):] {
		rows = append(rows, [2]string{fmt.Sprintf("#%d", s.Number), strikeWords(s, now)})
	}
	return rows
}

// strikeWords are one outage in one phrase: "lab/a killed at 21:44:10.123 (pid 4711), up after
// 600ms (pid 4712), ready after 655ms".
func strikeWords(s fault.StrikeRecord, now time.Time) string {
	if s.Skipped != "" {
		return fmt.Sprintf("%s left out: %s", s.Service, s.Skipped)
	}
	past := map[fault.OutageAction]string{fault.Kill: "killed", fault.Stop: "stopped", fault.Restart: "told to end"}[s.Action]
	text := s.Service + " " + past
	if !s.Down.IsZero() {
		text += fmt.Sprintf(" at %s (pid %d)", s.Down.Time.In(now.Location()).Format("15:04:05.000"), s.PID)
	}
	after := func(i fault.Instant) string {
		return qdisc.FormatDuration(time.Duration(i.Monotonic - s.Down.Monotonic).Round(time.Millisecond))
	}
	if !s.Up.IsZero() {
		text += ", up after " + after(s.Up)
		if s.NewPID != s.PID {
			text += fmt.Sprintf(" (pid %d)", s.NewPID)
		}
	}
	if !s.Ready.IsZero() {
		text += ", ready after " + after(s.Ready)
	}
	if s.Error != "" {
		text += ", not back: " + s.Error
	}
	return text
}

// strikeText is the strike that an event is about, empty for none.
func strikeText(e fault.Event, now time.Time) string {
	switch e.Kind {
	case "down", "up", "ready", "skipped", "failed":
		if r := e.Fault.Outages; r != nil && len(r.Strikes) == 1 {
			return strikeWords(r.Strikes[0], now)
		}
	}
	return ""
}

// outagePlan is a dry run of an outage as JSON.
type outagePlan struct {
	Engine    fault.Engine    `json:"engine"`
	Placement string          `json:"placement"`
	Outage    *outageView     `json:"outage"`
	LengthNS  *int64          `json:"length_ns"` // null: no end but the fault's own
	Timetable []plannedStrike `json:"timetable"`
	More      bool            `json:"more"` // the timetable goes on
	Warnings  []string        `json:"warnings"`
}

type plannedStrike struct {
	Number  int    `json:"number"`
	AtNS    int64  `json:"at_ns"` // since the fault began
	Service string `json:"service"`
}

// planOutage prints the timetable of an outage.
func (a *app) planOutage(spec fault.Spec) error {
	o := *spec.Outage
	v := outagePlan{
		Engine: fault.Process, Placement: "service " + strings.Join(o.Services, ", "), Outage: viewOutage(o, nil), Timetable: []plannedStrike{}, Warnings: []string{},
	}
	if length, ends := o.Length(); ends {
		v.LengthNS = new(int64(length))
	}
	most := momentsTold
	if a.output == outTable {
		most = momentsShown
	}
	for s := range o.Strikes() {
		if len(v.Timetable) == most {
			v.More = true
			break
		}
		v.Timetable = append(v.Timetable, plannedStrike{Number: s.Number, AtNS: int64(s.At), Service: s.Service})
	}
	return a.emit(answer{kind: "plan", data: v, table: func(w io.Writer, st style) {
		rows := planView{Engine: v.Engine, Placement: v.Placement}.head(w, st, spec)
		if v.LengthNS != nil {
			rows = append(rows, [2]string{"length", qdisc.FormatDuration(time.Duration(*v.LengthNS))})
		}
		rows = append(rows, [2]string{"seed", fmt.Sprint(o.Seed)})
		pairs(w, st, rows)
		t := table{head: []string{"OUTAGE", "AT", "SERVICE"}, right: map[int]bool{0: true, 1: true}}
		for _, s := range v.Timetable {
			t.add(fmt.Sprint(s.Number), qdisc.FormatDuration(time.Duration(s.AtNS)), s.Service)
		}
		t.write(w, st)
		if v.More {
			fmt.Fprintf(w, "and so on (all of it, up to %d: -o json)\n", momentsTold)
		}
	}})
}
