package cli

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/qdisc"
)

// labView is a lab as JSON.
type labView struct {
	Name    string         `json:"name"`
	Nodes   []nodeView     `json:"nodes"`
	Links   []linkView     `json:"links,omitempty"`
	Targets []string       `json:"targets"`
	Faults  []labFaultView `json:"faults,omitempty"`
	Up      *time.Time     `json:"up,omitempty"`
}

type nodeView struct {
	Name      string        `json:"name"`
	Role      lab.Role      `json:"role,omitempty"`
	Namespace string        `json:"namespace"`
	Forward   bool          `json:"forward,omitempty"`
	Addresses []string      `json:"addresses"`
	Routes    []string      `json:"routes,omitempty"`
	Services  []serviceView `json:"services"`
}

type serviceView struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	PID     int    `json:"pid,omitempty"`
	Address string `json:"address,omitempty"`
	Log     string `json:"log,omitempty"`
	// Ended is when it ended by itself, Status how: "exit status 1".
	Ended  *time.Time `json:"ended,omitempty"`
	Status string     `json:"status,omitempty"`
}

type linkView struct {
	A       string   `json:"a"`
	B       string   `json:"b"`
	Wire    string   `json:"wire,omitempty"`
	Base    string   `json:"base,omitempty"`
	Subnets []string `json:"subnets"`
	AToB    string   `json:"base_impairment_a_to_b,omitempty"`
	BToA    string   `json:"base_impairment_b_to_a,omitempty"`
}

// labFaultView is a fault on a lab's target.
type labFaultView struct {
	ID        string   `json:"id"`
	What      string   `json:"what"`
	Placement []string `json:"placement"`
}

func viewLab(l lab.Info) labView {
	v := labView{Name: l.Name, Nodes: []nodeView{}, Targets: list(l.Targets), Up: &l.Up}
	for _, n := range l.Nodes {
		node := nodeView{Name: n.Name, Namespace: n.Namespace, Addresses: []string{}, Services: []serviceView{}}
		for _, p := range n.Addresses {
			node.Addresses = append(node.Addresses, p.String())
		}
		for _, s := range n.Services {
			service := serviceView{Name: s.Name, Kind: s.Kind, PID: s.PID, Address: addressText(s.Address), Log: s.Log, Status: s.Status}
			if !s.Ended.IsZero() {
				service.Ended = &s.Ended
			}
			node.Services = append(node.Services, service)
		}
		v.Nodes = append(v.Nodes, node)
	}
	return v
}

func addressText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// with adds what the definition says.
func (v *labView) with(p lab.Plan) {
	roles := map[string]lab.PlannedNamespace{}
	for _, n := range p.Namespaces {
		roles[n.Name] = n
	}
	for i := range v.Nodes {
		n, ok := roles[v.Nodes[i].Name]
		if !ok {
			continue
		}
		v.Nodes[i].Role, v.Nodes[i].Forward = n.Role, n.Forward
		for _, r := range n.Routes {
			v.Nodes[i].Routes = append(v.Nodes[i].Routes, routeWords(r))
		}
	}
	for _, l := range p.Links {
		link := linkView{A: l.A, B: l.B, Wire: l.Wire, Base: l.Base, Subnets: []string{}, AToB: netemWords(l.AB), BToA: netemWords(l.BA)}
		for _, s := range l.Subnets {
			link.Subnets = append(link.Subnets, s.String())
		}
		v.Links = append(v.Links, link)
	}
}

func netemWords(n *qdisc.Netem) string {
	if n == nil {
		return ""
	}
	return n.String()
}

func routeWords(r lab.PlannedRoute) string {
	s := r.To.String()
	if r.Via.IsValid() {
		s += " via " + r.Via.String()
	}
	return s + " dev " + r.Device
}

// seeLab looks at a lab that is up, with its faults.
func (a *app) seeLab(ctx context.Context, agent Agent, name string) (labView, func(io.Writer, style), error) {
	info, text, err := agent.Lab(ctx, name)
	if err != nil {
		return labView{}, nil, err
	}
	faults, err := agent.List(ctx)
	if err != nil {
		return labView{}, nil, err
	}
	v := viewLab(info)
	services := map[string][]string{}
	for _, n := range v.Nodes {
		for _, s := range n.Services {
			services[n.Name] = append(services[n.Name], serviceWords(s))
		}
	}
	plan, err := planOf(text)
	if err != nil {
		return labView{}, nil, fmt.Errorf("lab %s: %w", name, err)
	}
	v.with(plan)
	here := faults[:0]
	for _, f := range faults {
		for _, t := range plan.Targets {
			if (f.State == fault.Active || f.State == fault.Drifted) && (f.Spec.Target == t.Name || f.Spec.Target == t.Lab+"/"+t.Name) {
				here = append(here, f)
				v.Faults = append(v.Faults, labFaultView{ID: f.ID, What: words(f.Spec), Placement: list(f.Placement)})
				break
			}
		}
	}
	return v, func(w io.Writer, s style) {
		fmt.Fprintf(w, "lab %s: targets %s\n", s.bold(info.Name), dash(qdisc.First(cellNames, info.Targets)))
		d := newDrawing(plan, services, here, s)
		if !d.draw(w) {
			d.listed(w)
		}
	}, nil
}

// planOf is the plan of a definition as the agent writes it; of one that has no text, none.
func planOf(text []byte) (lab.Plan, error) {
	if len(text) == 0 {
		return lab.Plan{}, nil
	}
	def, err := labfile.Parse(text, labfile.Source{})
	if err != nil {
		return lab.Plan{}, err
	}
	return def.Plan()
}

// serviceWords is a service in one phrase: "postgres 10.77.0.2:5432 (pid 7)".
func serviceWords(s serviceView) string {
	text := s.Name
	if s.Address != "" {
		text += " " + s.Address
	}
	switch {
	case s.Ended != nil:
		text += fmt.Sprintf(" (ended: %s; log: %s)", s.Status, s.Log)
	case s.PID != 0:
		text += fmt.Sprintf(" (pid %d)", s.PID)
	}
	return text
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (a *app) labShow() *cobra.Command {
	cmd := &cobra.Command{
		Use: "show NAME", Short: "Draw a lab that is up", Args: arguments(1, "pg"), ValidArgsFunction: a.completeLabsUp,
		Annotations: map[string]string{yamlOutput: "true"},
		Long: `Draw a lab that is up: its nodes with addresses and services, the wires between them, base impairments, and
the faults where they are. A big lab is told as lists. -o yaml is its file, by which it can be made again.`,
	}
	cmd.RunE = a.withAgent(func(cmd *cobra.Command, agent Agent, args []string) error {
		if a.output == outYAML {
			_, text, err := agent.Lab(cmd.Context(), args[0])
			if err != nil {
				return labMissing(err, args[0])
			}
			_, err = a.out.Write(text)
			return err
		}
		v, text, err := a.seeLab(cmd.Context(), agent, args[0])
		if err != nil {
			return labMissing(err, args[0])
		}
		return a.emit(answer{kind: "lab", data: v, table: text})
	})
	return cmd
}

// labMissing says how to make a lab that is not up.
func labMissing(err error, name string) error {
	if _, ok := labfile.Builtin(name); !ok || !strings.Contains(err.Error(), lab.ErrUnknown.Error()) {
		return err
	}
	return fault.WithHint(fmt.Errorf("lab %s is not up", name), "netemctl lab up "+name)
}
