package plan

import (
	"maps"
	"slices"

	"netemd/internal/policyfile"
	"netemd/internal/strictyaml"
	"netemd/internal/testbed/settings"
)

// MaxServers bounds the services that a case sets.
const MaxServers = 20

// servers are the settings of a case's services: its own, and those of the plan for services
// that it does not name. A policy that one names and does not have is the plan's.
func (r *reader) servers(key string, own strictyaml.Named[settings.Keys]) map[string][]byte {
	if len(own)+len(r.Servers) == 0 {
		return nil
	}
	all := map[string][]byte{}
	for _, e := range r.Servers {
		if own.Get(e.Name) == nil {
			all[e.Name] = r.server(strictyaml.Key("servers", e.Name), e.Value)
		}
	}
	for _, e := range own {
		all[e.Name] = r.server(key+"."+e.Name, e.Value)
	}
	if len(all) > MaxServers {
		r.refuse(key, "", "at most 20 services")
	}
	return all
}

// server is the text of one service's settings.
func (r *reader) server(key string, k settings.Keys) []byte {
	k.Policies = slices.Clone(k.Policies)
	for _, e := range k.Upstreams {
		name := e.Value.Policy
		if of := r.Policies.Get(name); name != "" && of != nil && k.Policies.Get(name) == nil {
			k.Policies = append(k.Policies, strictyaml.Entry[policyfile.Keys]{Name: name, Value: *of})
		}
	}
	text, err := k.YAML()
	if err == nil {
		_, err = settings.Parse(text)
	}
	if err != nil {
		mistakes, _ := strictyaml.Of(err)
		for _, m := range mistakes {
			r.errs = append(r.errs, &strictyaml.Mistake{Key: key + "." + m.Key, Value: m.Value, Wrong: m.Wrong, Want: m.Want})
		}
		if len(mistakes) == 0 {
			r.errs = append(r.errs, err)
		}
	}
	return text
}

// Services are those that a case sets, by name.
func (c Case) Services() []string { return slices.Sorted(maps.Keys(c.Servers)) }
