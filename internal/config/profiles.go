package config

import (
	"errors"

	"netemd/internal/profile"
	"netemd/internal/strictyaml"
)

// ProfileList are the profiles of the file.
func (c Config) ProfileList() []profile.Profile {
	var all []profile.Profile
	for _, e := range c.Profiles {
		all = append(all, e.Value.Profile(e.Name))
	}
	return all
}

// profiles are what is wrong with those of the file.
func (v *validation) profiles(named strictyaml.Named[profile.Keys]) {
	for _, e := range named {
		key := "profiles." + strictyaml.Word(e.Name)
		mistakes, _ := strictyaml.Of(errors.Join(profile.CheckName(key, e.Name), profile.Below(key, e.Value.Validate())))
		v.mistakes = append(v.mistakes, mistakes...)
	}
}
