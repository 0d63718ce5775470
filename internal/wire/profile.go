package wire

import (
	netemv1 "netemd/api/netem/v1"
	"netemd/internal/profile"
	"netemd/qdisc"
)

// Profiles translates those of the agent's configuration.
func Profiles(ps []profile.Profile) *netemv1.ProfilesResponse {
	m := &netemv1.ProfilesResponse{}
	for _, p := range ps {
		one := &netemv1.Profile{Name: p.Name, Summary: p.Summary, Uplink: Netem(p.Uplink), Downlink: Netem(p.Downlink)}
		for _, s := range p.Sources {
			one.Sources = append(one.Sources, &netemv1.ProfileSource{Title: s.Title, Url: s.URL, Year: s.Year, Says: s.Says})
		}
		m.Profiles = append(m.Profiles, one)
	}
	return m
}

// ProfilesOf translates an answer.
func ProfilesOf(m *netemv1.ProfilesResponse) []profile.Profile {
	var ps []profile.Profile
	for _, one := range m.GetProfiles() {
		p := profile.Profile{
			Name: one.GetName(), Summary: one.GetSummary(),
			Uplink: PatchOf(one.GetUplink()).Apply(qdisc.Netem{}), Downlink: PatchOf(one.GetDownlink()).Apply(qdisc.Netem{}),
		}
		for _, s := range one.GetSources() {
			p.Sources = append(p.Sources, profile.Source{Title: s.GetTitle(), URL: s.GetUrl(), Year: s.GetYear(), Says: s.GetSays()})
		}
		ps = append(ps, p)
	}
	return ps
}
