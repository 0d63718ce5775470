package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"netemd/internal/experiment"
	plans "netemd/internal/experiment/plan"
	"netemd/internal/lab"
	"netemd/internal/strictyaml"
	"netemd/internal/testbed/control"
	"netemd/qdisc"
)

// labServers are the servers of a lab that is up.
type labServers struct {
	agent Agent
	lab   string
}

// servers are those of a plan's lab; nil without one.
func (a *app) servers(ctx context.Context, agent Agent, name string) experiment.Servers {
	if name == "" {
		return nil
	}
	request, err := a.labRequest(ctx, name, "")
	if err != nil {
		return nil // the making of the lab says why
	}
	return labServers{agent, request.Name}
}

// Set implements experiment.Servers.
func (s labServers) Set(ctx context.Context, service string, text []byte) error {
	if text == nil {
		text = []byte{}
	}
	_, err := s.agent.LabServer(ctx, s.lab, service, text, false)
	return err
}

// Counters implements experiment.Servers.
func (s labServers) Counters(ctx context.Context, service string) (map[string]int64, error) {
	state, err := s.agent.LabServer(ctx, s.lab, service, nil, false)
	return state.Counters, err
}

// planDefinition is the lab of a plan; a lab that is not known here, the agent may know.
func (a *app) planDefinition(ctx context.Context, p plans.Plan) (d lab.Definition, known bool, err error) {
	request, err := a.labRequest(ctx, p.Lab, "")
	if err != nil {
		return d, false, err
	}
	d, err = request.Definition()
	if errors.Is(err, lab.ErrUnknown) {
		return d, false, nil
	}
	return d, err == nil, err
}

// checkCounters refuses a plan whose conditions ask for a counter that no service of its lab has.
func (a *app) checkCounters(ctx context.Context, p plans.Plan) error {
	asked := p.Counters()
	if len(asked) == 0 {
		return nil
	}
	d, known, err := a.planDefinition(ctx, p)
	if err != nil || !known {
		return err
	}
	kinds, names := map[string]string{}, []string{}
	for _, n := range d.Nodes {
		for _, s := range n.Services {
			if slices.Contains(control.Kinds(), s.Kind) {
				kinds[s.Name], names = s.Kind, append(names, s.Name)
			}
		}
	}
	var errs []error
	for i, k := range p.KPIs {
		for _, ref := range k.Refs() {
			service, counter, _ := strings.Cut(ref.Kind, ".")
			kind, ok := kinds[service]
			want := fmt.Sprintf("server[SERVICE.COUNTER] with a service of lab %s that counts: %s", p.Lab, orNone(names))
			near := strictyaml.Near(service, names)
			switch {
			case ref.Metric != "server" || ok && control.Counts(kind, counter):
				continue
			case ok:
				all := control.Counters(kind)
				want = fmt.Sprintf("server[%s.COUNTER] with a counter of %s: %s", service, kind, strings.Join(all, ", "))
				near = strictyaml.Near(counter, all)
			}
			if near != "" {
				want += "; did you mean " + near + "?"
			}
			errs = append(errs, &qdisc.FieldError{Field: fmt.Sprintf("kpis[%d].must", i), Value: ref.Metric + "[" + ref.Kind + "]", Want: want})
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	return nil
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "it has none"
	}
	return strings.Join(names, ", ")
}

// checkSettings refuses a plan whose lab does not have the servers that it sets, or the nodes
// that the settings name.
func (a *app) checkSettings(ctx context.Context, p plans.Plan) error {
	if p.Lab == "" || !slices.ContainsFunc(p.Cases, func(c plans.Case) bool { return len(c.Servers) > 0 }) {
		return nil
	}
	d, known, err := a.planDefinition(ctx, p)
	if err != nil || !known {
		return err
	}
	var errs []error
	for _, c := range p.Cases {
		for _, name := range c.Services() {
			if err := d.CheckSettings(name, c.Servers[name]); err != nil {
				errs = append(errs, fmt.Errorf("%s: case %s: servers.%s: %w", p.Name, c.Name, name, err))
			}
		}
	}
	return errors.Join(errs...)
}
