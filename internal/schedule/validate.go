package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"netemd/qdisc"
)

// Validate returns everything that is wrong with s, each as a *qdisc.FieldError with the path
// of the value: "steps[2].impairment.loss". It looks at every value that comes into force, so
// that no step is refused later for what it is.
func (s Schedule) Validate() error {
	v := &validation{}
	if n := len(s.Steps); n == 0 || n > MaxSteps {
		v.refuse("steps", strconv.Itoa(n), fmt.Sprintf("1 to %d steps", MaxSteps))
	}
	if s.Jitter < 0 || s.Jitter > MaxJitter || s.Jitter != s.Jitter {
		v.refuse("jitter", s.Jitter.String(), "a share from 0% to "+MaxJitter.String())
	}
	if len(s.Name) > maxName {
		v.refuse("name", s.Name[:maxName]+"...", fmt.Sprintf("at most %d bytes", maxName))
	}
	something := false
	for i, step := range s.Steps {
		last := i == len(s.Steps)-1 && s.rounds() == 1
		v.step(fmt.Sprintf("steps[%d]", i), step, last)
		something = something || !step.IsZero() || step.Ramp != nil && !step.Ramp.To.IsZero()
	}
	if len(s.Steps) > 0 && !something {
		v.refuse("steps", "", "an impairment in one of them at least")
	}
	v.rounds(s)
	return errors.Join(v.errs...)
}

const maxName = 64

type validation struct{ errs []error }

func (v *validation) refuse(field, value, want string) {
	v.errs = append(v.errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
}

func (v *validation) rounds(s Schedule) {
	switch {
	case s.Rounds < Forever:
		v.refuse("repeat", strconv.Itoa(s.Rounds), "a whole number from 1, or forever")
	case s.Endless():
	case s.nominal() > MaxLength/time.Duration(s.rounds()):
		v.refuse("repeat", strconv.Itoa(s.rounds()), fmt.Sprintf("rounds of %s that take at most %s together; or forever, until the fault ends",
			qdisc.FormatDuration(s.nominal()), qdisc.FormatDuration(MaxLength)))
	}
}

func (v *validation) step(at string, s Step, last bool) {
	switch {
	case s.For == 0 && last && s.Ramp == nil:
	case s.For == 0 && s.Ramp != nil:
		v.refuse(at+".for", "", "how long the ramp takes, such as 10s")
	case s.For == 0 && s.Ramp == nil && s.Flap == nil:
		v.refuse(at+".for", "", "how long the step takes, such as 10s; only the last step of a schedule without repeat may leave it out, and lasts until the fault ends")
	case s.For < MinSpan || s.For > MaxLength:
		v.refuse(at+".for", qdisc.FormatDuration(s.For), fmt.Sprintf("a time from %s to %s", qdisc.FormatDuration(MinSpan), qdisc.FormatDuration(MaxLength)))
	}
	if s.Ramp != nil && s.Flap != nil {
		v.refuse(at+".flap", "", "one of a ramp and flapping, in steps of their own")
		return
	}
	v.flap(at+".flap", s)
	if s.Ramp != nil {
		v.ramp(at, s)
		return
	}
	v.impairment(at+".impairment", at+".impairment_from", s.Impairment)
}

func (v *validation) flap(at string, s Step) {
	if s.Flap == nil {
		return
	}
	f := *s.Flap
	on := f.on()
	if f.Period < 2*MinSpan || f.Period > MaxLength || s.For > 0 && f.Period > s.For {
		v.refuse(at+".period", qdisc.FormatDuration(f.Period), fmt.Sprintf("a time from %s to that of the step", qdisc.FormatDuration(2*MinSpan)))
	} else if !(f.Duty > 0 && f.Duty < 100) || on < MinSpan || f.Period-on < MinSpan {
		v.refuse(at+".duty", f.Duty.String(), fmt.Sprintf("a share that leaves %s at least in force and out of force in each period, such as 50%%", qdisc.FormatDuration(MinSpan)))
	}
	if s.IsZero() {
		v.refuse(at, "", "an impairment beside it, which comes and goes")
	}
}

// ramp looks at both ends, and at all that lies between them.
func (v *validation) ramp(at string, s Step) {
	r := *s.Ramp
	if r.Every != 0 && (r.Every < MinEvery || r.Every > s.For) {
		v.refuse(at+".every", qdisc.FormatDuration(r.Every), fmt.Sprintf("a time from %s to that of the step", qdisc.FormatDuration(MinEvery)))
		return
	}
	if s.For <= 0 {
		return
	}
	n := r.changes(s.For)
	if n > MaxRamp {
		v.refuse(at+".every", qdisc.FormatDuration(r.Every), fmt.Sprintf("at most %d changes of one ramp", MaxRamp))
		return
	}
	before := len(v.errs)
	v.impairment(at+".from", at+".from_back", s.Impairment)
	v.impairment(at+".to", at+".to_back", r.To)
	v.alike(at+".to", s.Packet, r.To.Packet)
	if s.PacketFrom != nil || r.To.PacketFrom != nil {
		v.alike(at+".to_back", s.Back(), r.To.Back())
	}
	for change := 1; change < n-1 && len(v.errs) == before; change++ { // the ends were looked at
		i := s.rampAt(change, n)
		for _, p := range []qdisc.Netem{i.Packet, i.Back()} {
			if err := p.Validate(); err != nil {
				v.refuse(at+".to", p.String(), "ends between which everything is allowed: "+err.Error())
				break
			}
		}
	}
}

// alike wants what is no number to be the same at both ends of a ramp, where both have it.
func (v *validation) alike(at string, a, b qdisc.Netem) {
	refuse := func(field string) {
		v.refuse(at+"."+field, "", "the same at both ends of a ramp: it has nothing between")
	}
	if (a.Rate == 0) != (b.Rate == 0) {
		v.refuse(at+".rate", b.Rate.String(), "a rate at both ends of a ramp, or at none")
	}
	if a.Jitter != 0 && b.Jitter != 0 && (a.Distribution != b.Distribution || a.Samples != b.Samples) {
		refuse("distribution")
	}
	for _, f := range []struct {
		name string
		same bool
		both bool
	}{
		{"ecn", a.ECN == b.ECN, a.Loss != 0 && b.Loss != 0},
		{"loss_state", a.LossState == b.LossState, true},
		{"loss_gemodel", a.GilbertElliott == b.GilbertElliott, true},
		{"gap", a.Gap == b.Gap, a.Reorder != 0 && b.Reorder != 0},
		{"packet_overhead", a.PacketOverhead == b.PacketOverhead, true},
		{"cell_size", a.CellSize == b.CellSize, true},
		{"cell_overhead", a.CellOverhead == b.CellOverhead, true},
		{"slot", a.Slot == b.Slot, true},
		{"limit", a.Limit == b.Limit, a.Limit != 0 && b.Limit != 0},
		{"seed", a.Seed == b.Seed, a.Seed != 0 && b.Seed != 0},
	} {
		if f.both && !f.same {
			refuse(f.name)
		}
	}
}

func (v *validation) impairment(to, from string, i Impairment) {
	v.netem(to, i.Packet)
	if i.PacketFrom != nil {
		v.netem(from, *i.PacketFrom)
	}
}

func (v *validation) netem(at string, n qdisc.Netem) {
	if n.Samples != "" || n.Slot.Samples != "" {
		v.refuse(at+".distribution", string(qdisc.Custom), "a shape with a name: a schedule has no tables")
		return
	}
	for _, err := range flat(n.Validate()) {
		var f *qdisc.FieldError
		if !errors.As(err, &f) {
			v.errs = append(v.errs, fmt.Errorf("%s: %w", at, err))
			continue
		}
		in := *f
		in.Field = at + "." + f.Field
		v.errs = append(v.errs, &in)
	}
}

// flat are the errors that err joins.
func flat(err error) []error {
	if err == nil {
		return nil
	}
	if many, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only of the validation itself
		return slices.Clone(many.Unwrap())
	}
	return []error{err}
}
