package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"netemd/internal/lab"
)

// labPlan prints what a lab would consist of.
func (a *app) labPlan(def lab.Definition) error {
	plan, err := def.Plan()
	if err != nil {
		return err
	}
	v := labView{Name: def.Name, Nodes: []nodeView{}, Targets: []string{}}
	services := map[string][]string{}
	for _, n := range plan.Namespaces {
		node := nodeView{Name: n.Name, Namespace: n.Namespace, Addresses: []string{}, Services: []serviceView{}}
		for _, d := range n.Devices {
			for _, p := range d.Addresses {
				node.Addresses = append(node.Addresses, p.String())
			}
		}
		v.Nodes = append(v.Nodes, node)
	}
	for i, n := range def.Nodes { // the plan begins with them
		for _, s := range n.Services {
			view := serviceView{Name: s.Name, Kind: s.Kind}
			if s.Kind == "" {
				view.Kind = lab.KindCommand
			}
			what := strings.Join(s.Command, " ")
			if s.Port != 0 {
				what = ":" + strconv.Itoa(int(s.Port))
				view.Address = what
			}
			v.Nodes[i].Services = append(v.Nodes[i].Services, view)
			services[n.Name] = append(services[n.Name], strings.TrimSpace(s.Name+" "+what))
		}
	}
	for _, t := range plan.Targets {
		v.Targets = append(v.Targets, t.Name)
	}
	v.with(plan)
	return a.emit(answer{kind: "lab_plan", data: v, table: func(w io.Writer, s style) {
		fmt.Fprintf(w, "plan: lab %s (nothing was changed)\n", s.bold(def.Name))
		d := newDrawing(plan, services, nil, s)
		if !d.draw(w) {
			d.listed(w)
		}
		fmt.Fprintln(w)
		t := table{head: []string{"NAMESPACE", "DEVICE", "TO", "ADDRESSES"}}
		for _, n := range plan.Namespaces {
			name := n.Namespace
			for _, dev := range n.Devices {
				var addresses []string
				for _, p := range dev.Addresses {
					addresses = append(addresses, p.String())
				}
				t.add(name, dev.Name, dev.Toward, dash(strings.Join(addresses, " ")))
				name = ""
			}
			if len(n.Devices) == 0 {
				t.add(name, "-", "-", "-")
			}
		}
		t.write(w, s)
		if len(plan.Targets) == 0 {
			return
		}
		fmt.Fprintln(w)
		targets := table{head: []string{"TARGET", "TO", "FROM"}}
		for _, t := range plan.Targets {
			targets.add(t.Name, fmt.Sprintf("%s of %s in %s", t.To.Hook, t.To.Device, t.To.Namespace), fmt.Sprintf("%s of %s in %s", t.From.Hook, t.From.Device, t.From.Namespace))
		}
		targets.write(w, s)
	}})
}
