// Package timetable reads a schedule from a YAML file, strictly: what is wrong is said with its
// line and column, all at once.
//
//	schedule: brownout
//	repeat: 3                  # or forever; once unless said
//	jitter: 10%                # of each time, either way
//	seed: 7
//	steps:
//	  - {for: 10s}                                      # nothing is impaired
//	  - {for: 20s, impairment: {loss: 5%, delay: 20ms}}
//	  - {for: 30s, ramp: {begin: {loss: 5%}, end: {loss: 50%}, every: 1s}}
//	  - {for: 20s, impairment: {loss: 100%}, flap: {period: 2s, duty: 25%}}
//	  - {for: 10s, profile: 3g}
//
// Instead of its own length a step may have the time at which it begins, counted from the
// beginning of the round; the step before then lasts until it. The last step of a schedule that
// is not repeated may have neither, and lasts until the fault ends. impairment_from is the
// impairment of the packets from the target, where it is another one.
package timetable

import (
	"errors"
	"strconv"
	"time"

	"netemd/internal/impairment"
	"netemd/internal/schedule"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

type file struct {
	Name   string        `yaml:"schedule,omitempty" want:"the schedule's name, such as brownout"`
	Repeat repeat        `yaml:"repeat,omitempty"`
	Jitter qdisc.Percent `yaml:"jitter,omitempty" want:"a share of each time from 0% to 50%, such as 10%"`
	Seed   uint64        `yaml:"seed,omitempty" want:"a whole number, not below 0"`
	Steps  []step        `yaml:"steps" strict:"required" want:"a list of steps, such as [{for: 10s, impairment: {loss: 5%}}]"`
}

type step struct {
	At             *time.Duration   `yaml:"at,omitempty" want:"when the step begins, since the round began, such as 30s"`
	For            time.Duration    `yaml:"for,omitempty" want:"how long the step takes, such as 10s"`
	Impairment     *impairment.Keys `yaml:"impairment,omitempty"`
	ImpairmentFrom *impairment.Keys `yaml:"impairment_from,omitempty"`
	Profile        string           `yaml:"profile,omitempty" want:"the name of a profile, such as 3g"`
	Ramp           *ramp            `yaml:"ramp,omitempty"`
	Flap           *flap            `yaml:"flap,omitempty"`
}

// ramp is from Begin, by default what the step before left, to End.
type ramp struct {
	Begin     *impairment.Keys `yaml:"begin,omitempty"`
	BeginFrom *impairment.Keys `yaml:"begin_from,omitempty"`
	End       *impairment.Keys `yaml:"end" strict:"required"`
	EndFrom   *impairment.Keys `yaml:"end_from,omitempty"`
	Every     *time.Duration   `yaml:"every,omitempty" want:"the time between two changes, from 100ms, such as 500ms"`
}

// flap is an impairment that comes and goes.
type flap struct {
	Period time.Duration `yaml:"period" strict:"required" want:"the time from one beginning to the next, from 100ms, such as 2s"`
	Duty   qdisc.Percent `yaml:"duty" strict:"required" want:"the share of the period in which the impairment is in force, such as 25%"`
}

// repeat is a number of rounds, or forever.
type repeat int

func (r *repeat) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*r = schedule.Forever
		return nil
	}
	n, err := strconv.Atoi(string(text))
	if err != nil || n < 1 || strconv.Itoa(n) != string(text) {
		return errors.New("no number of rounds")
	}
	*r = repeat(n)
	return nil
}

// WantYAML is the form, after "want".
func (repeat) WantYAML() string { return "a whole number from 1, or forever" }

var format = strictyaml.Format{}

// Parse reads a schedule. profiles finds those that its steps name. The error has a
// *strictyaml.Mistake for each thing that is wrong with the text.
func Parse(path string, text []byte, profiles Profiles) (schedule.Schedule, error) {
	var f file
	doc := format.Read(path, text, &f)
	if !doc.Readable() {
		return schedule.Schedule{}, doc.Err()
	}
	r := &reader{profiles: profiles}
	s := r.read(f)
	if err := doc.Check(errors.Join(r.errs...)); err != nil {
		return schedule.Schedule{}, err
	}
	if err := doc.Err(); err != nil {
		return schedule.Schedule{}, err
	}
	if err := doc.Check(inKeys(s.Validate())); err != nil {
		return schedule.Schedule{}, err
	}
	return s, doc.Err()
}
