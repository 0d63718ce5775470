package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/profile"
	"netemd/internal/schedule"
	"netemd/internal/schedule/timetable"
	"netemd/qdisc"
)

const wantSchedule = "the path of a schedule, a YAML file with steps"

func scheduleFlag(cmd *cobra.Command, path *string) {
	cmd.Flags().Var(once(path, "FILE", wantSchedule), "schedule", "change the impairment by the timetable in this `FILE`; --dry-run shows it")
	_ = cmd.RegisterFlagCompletionFunc("schedule", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	})
}

// fillSchedule gives spec the timetable of the file. The direction is both where none was said
// and the two differ.
func (f *packetFlags) fillSchedule(a *app, cmd *cobra.Command, spec *fault.Spec) error {
	text, err := a.fileText(cmd.Context(), "schedule", f.schedule)
	if err != nil {
		return err
	}
	s, err := timetable.Parse(f.schedule, text, func(name string) (profile.Profile, error) { return a.findProfile(cmd.Context(), name) })
	if err != nil {
		return err
	}
	if seed := f.patch.Seed; seed != nil {
		s.Seed = *seed
		seeded(&s, *seed)
	}
	if s.Asymmetric() && !cmd.Flags().Changed("direction") {
		spec.Direction = fault.Both
	}
	spec.Schedule = &s
	return nil
}

// seeded gives each impairment of s a seed, unless it has one.
func seeded(s *schedule.Schedule, seed uint64) {
	one := func(n *qdisc.Netem) {
		if n != nil && !n.IsZero() && n.Seed == 0 {
			n.Seed = seed
		}
	}
	for i := range s.Steps {
		step := &s.Steps[i]
		one(&step.Packet)
		one(step.PacketFrom)
		if step.Ramp != nil {
			one(&step.Ramp.To.Packet)
			one(step.Ramp.To.PacketFrom)
		}
	}
}

// scheduleView is a schedule as JSON; null is what has no end.
type scheduleView struct {
	Name          string  `json:"name"`
	Rounds        *int    `json:"rounds"`
	LengthNS      *int64  `json:"length_ns"`
	Changes       *uint64 `json:"changes"`
	JitterPercent float64 `json:"jitter_percent"`
	Seed          uint64  `json:"seed"`
	// Step is where it is; null in a dry run.
	Step *stepView `json:"step"`
}

// stepView is where a fault is in its schedule.
type stepView struct {
	Number    uint64     `json:"number"`
	Step      int        `json:"step"`
	Round     int        `json:"round"`
	Began     time.Time  `json:"began"`
	Next      *time.Time `json:"next"`
	Over      bool       `json:"over"`
	LateNS    int64      `json:"late_ns"`
	MaxLateNS int64      `json:"max_late_ns"`
	Skipped   uint64     `json:"skipped_changes"`
}

func viewSchedule(s schedule.Schedule) *scheduleView {
	v := &scheduleView{Name: s.Name, JitterPercent: float64(s.Jitter), Seed: s.Seed}
	if s.Rounds != schedule.Forever {
		v.Rounds = new(max(1, s.Rounds))
	}
	if length, ends := s.Length(); ends {
		v.LengthNS = new(int64(length))
	}
	if n, ends := s.Count(); ends {
		v.Changes = &n
	}
	return v
}

func viewStep(s *fault.Step) *stepView {
	if s == nil {
		return nil
	}
	v := &stepView{Number: s.Number, Step: s.Step, Round: s.Round, Began: s.Began, Over: s.Over, LateNS: int64(s.Late), MaxLateNS: int64(s.MaxLate), Skipped: s.Skipped}
	if !s.Next.IsZero() {
		v.Next = &s.Next
	}
	return v
}

// scheduleWords are a schedule in one phrase.
func scheduleWords(s schedule.Schedule) string {
	if s.Name == "" {
		return "schedule"
	}
	return "schedule " + s.Name
}

// stepRows say where a fault is in its schedule.
func stepRows(f fault.Fault, now time.Time) [][2]string {
	s := f.Step
	if f.Spec.Schedule == nil || s == nil {
		return nil
	}
	what := fmt.Sprintf("change %d", s.Number)
	if s.Of > 0 {
		what += fmt.Sprintf(" of %d", s.Of)
	}
	what += fmt.Sprintf(", step %d", s.Step)
	if s.Round > 1 {
		what += fmt.Sprintf(" of round %d", s.Round)
	}
	if s.Over {
		what = "over: nothing is impaired any more"
	}
	if name := f.Spec.Schedule.Name; name != "" {
		what = name + ": " + what
	}
	rows := [][2]string{{"schedule", what}}
	switch {
	case s.Over:
	case s.Next.IsZero():
		rows = append(rows, [2]string{"next", "none, this one lasts until the fault ends"})
	default:
		rows = append(rows, [2]string{"next", fmt.Sprintf("at %s (in %s)", s.Next.In(now.Location()).Format("15:04:05.0"), short(max(0, s.Next.Sub(now))))})
	}
	late := fmt.Sprintf("%s, at most %s", qdisc.FormatDuration(s.Late.Round(10*time.Microsecond)), qdisc.FormatDuration(s.MaxLate.Round(10*time.Microsecond)))
	if s.Skipped > 0 {
		late += fmt.Sprintf("; %d changes were skipped, the agent having stood still", s.Skipped)
	}
	return append(rows, [2]string{"late by", late})
}

// stepWords say a step in one phrase, beside its fault's id.
func stepWords(f fault.Fault) string {
	s := f.Step
	if s == nil {
		return ""
	}
	if s.Over {
		return "its schedule is over"
	}
	text := fmt.Sprintf("change %d: %s", s.Number, f.Spec.Packet)
	if from := f.Spec.PacketFrom; from != nil {
		text += fmt.Sprintf(", back %s", from)
	}
	return text
}

// momentView is a row of a timetable as JSON.
type momentView struct {
	Number  uint64      `json:"number"`
	Round   int         `json:"round"`
	Step    int         `json:"step"`
	BeginNS int64       `json:"begin_ns"`
	EndNS   *int64      `json:"end_ns"`
	Over    bool        `json:"over,omitempty"`
	Summary string      `json:"summary"`
	Packet  *packetView `json:"packet"`
	// From is that of the packets from the target; null where it is the same.
	From *packetView `json:"packet_from"`
}

// schedulePlan is a dry run of a schedule as JSON.
type schedulePlan struct {
	Engine    fault.Engine    `json:"engine"`
	Placement string          `json:"placement"`
	Direction fault.Direction `json:"direction"`
	Match     string          `json:"match"`
	Schedule  *scheduleView   `json:"schedule"`
	// Timetable has the first moments; More says that there are others.
	Timetable []momentView `json:"timetable"`
	More      bool         `json:"more"`
	Warnings  []string     `json:"warnings"`
}

// How many moments a dry run prints, and how many it has as JSON.
const (
	momentsShown = 20
	momentsTold  = 10_000
)

// planSchedule prints the timetable of a fault, without an agent and without root.
func (a *app) planSchedule(ctx context.Context, spec fault.Spec) error {
	places, err := a.planPlaces(ctx, spec)
	if err != nil {
		return err
	}
	s := *spec.Schedule
	first := spec
	first.Follow(s.At(0))
	p, err := plan(first, places, kernel{})
	if err != nil {
		return err
	}
	v := schedulePlan{
		Engine: p.Engine, Placement: p.Placement, Direction: p.Direction, Match: p.Match, Schedule: viewSchedule(s), Warnings: scheduleWarnings(spec),
	}
	most := momentsTold
	if a.output == outTable {
		most = momentsShown
	}
	for c := s.Begin(); ; {
		v.Timetable = append(v.Timetable, viewMoment(c.Moment()))
		if !c.Next() {
			break
		}
		if len(v.Timetable) == most {
			v.More = true
			break
		}
	}
	if a.output == outTable {
		a.warn(v.Warnings)
	}
	return a.emit(answer{kind: "plan", data: v, table: func(w io.Writer, st style) {
		rows := planView{Engine: v.Engine, Placement: v.Placement, Match: v.Match}.head(w, st, spec)
		rows = append(rows, [2]string{"length", lengthText(s)}, [2]string{"times", timesText(s)})
		pairs(w, st, rows)
		t := table{head: []string{"CHANGE", "BEGINS", "LASTS", "ROUND", "STEP", "IMPAIRMENT"}, right: map[int]bool{0: true, 1: true, 2: true, 3: true, 4: true}}
		for _, m := range v.Timetable {
			lasts := "to the end"
			if m.EndNS != nil {
				lasts = qdisc.FormatDuration(time.Duration(*m.EndNS - m.BeginNS))
			}
			if m.Over {
				lasts = ""
			}
			t.add(fmt.Sprint(m.Number), qdisc.FormatDuration(time.Duration(m.BeginNS)), lasts, fmt.Sprint(m.Round), fmt.Sprint(m.Step), m.Summary)
		}
		t.write(w, st)
		if v.More {
			fmt.Fprintf(w, "and so on (all of it, up to %d changes: -o json)\n", momentsTold)
		}
	}})
}

func viewMoment(m schedule.Moment) momentView {
	v := momentView{Number: m.Number, Round: m.Round, Step: m.Step, BeginNS: int64(m.Begin), Over: m.Over, Summary: brief(m.Packet), Packet: viewPacket(m.Packet)}
	if !m.Last() {
		v.EndNS = new(int64(m.End))
	}
	if m.Over {
		v.Summary = "over: the fault ends, or impairs nothing any more"
	}
	if m.PacketFrom != nil {
		v.From = viewPacket(*m.PacketFrom)
		v.Summary += ", back " + brief(*m.PacketFrom)
	}
	return v
}

func lengthText(s schedule.Schedule) string {
	length, ends := s.Length()
	switch {
	case !ends && s.Rounds == schedule.Forever:
		return "rounds without end, until the fault ends"
	case !ends:
		return "the last step lasts until the fault ends"
	}
	return qdisc.FormatDuration(length) + ", which is the fault's time to live unless --ttl or a command says otherwise"
}

func timesText(s schedule.Schedule) string {
	if s.Jitter == 0 {
		return ""
	}
	return fmt.Sprintf("varied by up to %s either way, drawn with seed %d", s.Jitter, s.Seed)
}

// scheduleWarnings are those of all steps.
func scheduleWarnings(spec fault.Spec) []string {
	seen := map[string]bool{}
	out := []string{}
	for index := range 2 {
		for _, w := range spec.Cover(index).Warnings() {
			if !seen[w] {
				seen[w] = true
				out = append(out, w)
			}
		}
	}
	if spec.Engine == "" || spec.Engine == fault.Auto {
		out = append(out, "engine auto: netemd chooses at apply, by a real try")
	}
	return append(out, protectionWarnings(spec)...)
}
