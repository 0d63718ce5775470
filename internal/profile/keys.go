package profile

import (
	"errors"
	"fmt"

	"netemd/internal/impairment"
	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// Keys are the keys of a profile in a file, by package strictyaml. Of Both, Uplink and
// Downlink one at least is said, and Both alone.
type Keys struct {
	Summary  string           `yaml:"summary,omitempty" want:"a few words for people"`
	Both     *impairment.Keys `yaml:"both,omitempty"`
	Uplink   *impairment.Keys `yaml:"uplink,omitempty"`
	Downlink *impairment.Keys `yaml:"downlink,omitempty"`
	// Source is where the numbers come from, for people.
	Source string `yaml:"source,omitempty" want:"where the numbers come from"`
}

// WantYAML is the form, after "want".
func (Keys) WantYAML() string {
	return "a profile, such as {uplink: {delay: 20ms, rate: 1mbit}, downlink: {delay: 20ms, rate: 10mbit}}, or {both: {delay: 45ms}}"
}

// Profile is what the keys say.
func (k Keys) Profile(name string) Profile {
	p := Profile{Name: name, Summary: k.Summary}
	if k.Both != nil {
		p.Uplink = k.Both.Netem()
		p.Downlink = p.Uplink
	}
	if k.Uplink != nil {
		p.Uplink = k.Uplink.Netem()
	}
	if k.Downlink != nil {
		p.Downlink = k.Downlink.Netem()
	}
	if k.Source != "" {
		p.Sources = []Source{{Title: k.Source}}
	}
	return p
}

// Validate returns everything that is wrong, each as a *qdisc.FieldError whose field is the
// key. It does not look at the name.
func (k Keys) Validate() error {
	var errs []error
	switch {
	case k.Both == nil && k.Uplink == nil && k.Downlink == nil:
		errs = append(errs, &qdisc.FieldError{Field: "both", Want: "an impairment of both directions, or uplink and downlink, or one of these"})
	case k.Both != nil && (k.Uplink != nil || k.Downlink != nil):
		errs = append(errs, &qdisc.FieldError{Field: "both", Why: "stands beside uplink or downlink", Want: "it alone"})
	}
	for _, side := range []struct {
		key string
		i   *impairment.Keys
	}{{"both", k.Both}, {"uplink", k.Uplink}, {"downlink", k.Downlink}} {
		if side.i != nil {
			errs = append(errs, Below(side.key, side.i.Validate()))
		}
	}
	return errors.Join(errs...)
}

// CheckName refuses what can be no profile's name, or is that of a built-in one.
func CheckName(field, name string) error {
	_, builtin := Find(name)
	switch {
	case !ValidName(name):
		return &qdisc.FieldError{Field: field, Value: name, Want: "a profile's name: letters, digits, '-', '_' and '.', at most 64, without .yaml at the end"}
	case builtin:
		return &qdisc.FieldError{Field: field, Value: name, Why: "is the name of a built-in profile", Want: "another one"}
	}
	return nil
}

// Below puts the fields of err, each a *qdisc.FieldError, below a key.
func Below(key string, err error) error {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the validation's own
		var errs []error
		for _, e := range joined.Unwrap() {
			errs = append(errs, Below(key, e))
		}
		return errors.Join(errs...)
	}
	f, ok := errors.AsType[*qdisc.FieldError](err)
	if !ok {
		return fmt.Errorf("%s: %w", key, err)
	}
	named := *f
	if named.Field = key; f.Field != "" {
		named.Field += "." + f.Field
	}
	return &named
}

// file is a file with one profile.
type file struct {
	Profile string `yaml:"profile" strict:"required" want:"the profile's name, such as office"`
	Keys    `yaml:",inline"`
}

var format = strictyaml.Format{}

// Parse reads a file with one profile; the error has a *strictyaml.Mistake, with its line and
// column, for each thing that is wrong.
func Parse(path string, text []byte) (Profile, error) {
	var f file
	doc := format.Read(path, text, &f)
	if doc.Readable() {
		if err := doc.Check(errors.Join(CheckName("profile", f.Profile), f.Validate())); err != nil {
			return Profile{}, err
		}
	}
	if err := doc.Err(); err != nil {
		return Profile{}, err
	}
	return f.Keys.Profile(f.Profile), nil
}
