package timetable

import (
	"fmt"
	"regexp"
	"sync"
	"time"

	"netemd/internal/impairment"
	"netemd/internal/profile"
	"netemd/internal/schedule"
	"netemd/qdisc"
)

// Profiles finds a profile by its name; the error names what there is.
type Profiles func(name string) (profile.Profile, error)

// reader makes a schedule of a file. What it cannot make, it refuses at the key.
type reader struct {
	profiles Profiles
	errs     []error
}

func (r *reader) refuse(key, value, want string) {
	r.errs = append(r.errs, &qdisc.FieldError{Field: key, Value: value, Want: want})
}

func (r *reader) read(f file) schedule.Schedule {
	s := schedule.Schedule{Name: f.Name, Rounds: int(f.Repeat), Jitter: f.Jitter, Seed: f.Seed}
	var left schedule.Impairment // by the step before
	for i, in := range f.Steps {
		key := fmt.Sprintf("steps[%d]", i)
		step := schedule.Step{For: in.For}
		switch {
		case in.Ramp != nil:
			step.Impairment, step.Ramp = r.ramp(key, in, left)
			left = step.Ramp.To
		default:
			step.Impairment = r.impairment(key, in)
			if left = step.Impairment; in.Flap != nil {
				left = schedule.Impairment{}
			}
		}
		if in.Flap != nil {
			step.Flap = &schedule.Flap{Period: in.Flap.Period, Duty: in.Flap.Duty}
		}
		s.Steps = append(s.Steps, step)
	}
	r.times(f.Steps, s.Steps)
	return s
}

// impairment is that of a step without a ramp.
func (r *reader) impairment(key string, in step) schedule.Impairment {
	if in.Profile == "" {
		return schedule.Impairment{Packet: r.netem(key+".impairment", in.Impairment), PacketFrom: r.back(key+".impairment_from", in.ImpairmentFrom)}
	}
	if in.Impairment != nil || in.ImpairmentFrom != nil {
		r.refuse(key+".profile", in.Profile, "a profile or an impairment, not both")
		return schedule.Impairment{}
	}
	p, err := r.profiles(in.Profile)
	if err != nil {
		r.errs = append(r.errs, &qdisc.FieldError{Field: key + ".profile", Value: in.Profile, Want: err.Error()})
		return schedule.Impairment{}
	}
	to, from := p.Toward(false)
	i := schedule.Impairment{Packet: to}
	if to != from {
		i.PacketFrom = &from
	}
	return i
}

func (r *reader) ramp(key string, in step, left schedule.Impairment) (schedule.Impairment, *schedule.Ramp) {
	if in.Impairment != nil || in.ImpairmentFrom != nil || in.Profile != "" {
		r.refuse(key+".ramp", "", "the impairments at its begin and end, and none beside it")
	}
	key += ".ramp"
	begin := left
	if in.Ramp.Begin != nil || in.Ramp.BeginFrom != nil {
		begin = schedule.Impairment{Packet: r.netem(key+".begin", in.Ramp.Begin), PacketFrom: r.back(key+".begin_from", in.Ramp.BeginFrom)}
	}
	end := schedule.Impairment{Packet: r.netem(key+".end", in.Ramp.End), PacketFrom: r.back(key+".end_from", in.Ramp.EndFrom)}
	ramp := &schedule.Ramp{To: end}
	if every := in.Ramp.Every; every != nil {
		if ramp.Every = *every; ramp.Every == 0 { // which would be the default
			r.refuse(key+".every", "0s", "a time from "+qdisc.FormatDuration(schedule.MinEvery)+" to that of the step")
		}
	}
	return begin, ramp
}

func (r *reader) netem(key string, k *impairment.Keys) qdisc.Netem {
	if k == nil {
		return qdisc.Netem{}
	}
	n := k.Netem()
	if !n.IsZero() || k.Queue != 0 { // nothing, as in {loss: 0%}, is the end of a ramp, or a pause
		if err := k.Validate(); err != nil {
			r.errs = append(r.errs, profile.Below(key, err))
		}
	}
	return n
}

func (r *reader) back(key string, k *impairment.Keys) *qdisc.Netem {
	if k == nil {
		return nil
	}
	return new(r.netem(key, k))
}

// times gives steps the lengths that follow from when the next one begins.
func (r *reader) times(in []step, out []schedule.Step) {
	var now time.Duration // when the step begins; -1 where that is not known
	for i := range in {
		key := fmt.Sprintf("steps[%d].at", i)
		if at := in[i].At; at != nil {
			switch {
			case i == 0 && *at != 0:
				r.refuse(key, qdisc.FormatDuration(*at), "0s for the first step, or a step before it")
			case i > 0 && in[i-1].For != 0 && now >= 0 && *at != now:
				r.refuse(key, qdisc.FormatDuration(*at), qdisc.FormatDuration(now)+", when the step before ends, or that one without for")
			case i > 0 && in[i-1].For == 0 && now >= 0:
				if *at <= now {
					r.refuse(key, qdisc.FormatDuration(*at), "a time after "+qdisc.FormatDuration(now)+", when the step before begins")
				} else {
					out[i-1].For = *at - now
				}
			}
			now = *at
		} else if i > 0 && in[i-1].For == 0 {
			r.refuse(fmt.Sprintf("steps[%d].for", i-1), "", "how long the step takes, such as 10s, or when the next one begins (at)")
			now = -1
		}
		if now >= 0 && in[i].For != 0 {
			now += in[i].For
		}
	}
}

// ramps are the fields of a schedule's ramp, which the file has in a section of its own; the
// fields of an impairment are keys of their own there.
var ramps = sync.OnceValue(func() []rampField {
	return []rampField{
		{regexp.MustCompile(`^(steps\[\d+\])\.from_back`), "$1.ramp.begin_from"},
		{regexp.MustCompile(`^(steps\[\d+\])\.from`), "$1.ramp.begin"},
		{regexp.MustCompile(`^(steps\[\d+\])\.to_back`), "$1.ramp.end_from"},
		{regexp.MustCompile(`^(steps\[\d+\])\.to`), "$1.ramp.end"},
		{regexp.MustCompile(`^(steps\[\d+\])\.every`), "$1.ramp.every"},
	}
})

// rampField is a field of a schedule's ramp, and its key in a file.
type rampField struct {
	field *regexp.Regexp
	key   string
}

// inKeys gives each *qdisc.FieldError of a schedule's validation the key of its field.
func inKeys(err error) error {
	return qdisc.Renamed(err, func(field string) string {
		for _, r := range ramps() {
			if r.field.MatchString(field) {
				return r.field.ReplaceAllString(field, r.key)
			}
		}
		return field
	})
}
