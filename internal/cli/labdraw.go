package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/target"
)

// A lab is drawn up to this size, and told as lists above it.
const (
	maxDrawn = 40
	maxDepth = 14
	// drawWidth is where its lines are broken.
	drawWidth = 80
)

// drawing is a lab as a tree of its nodes, with links between that stand beside the tree.
type drawing struct {
	plan     lab.Plan
	services map[string][]string
	// faults are what sits on a link in the direction to one of its ends: "kqv1 loss 20%".
	faults map[crossed][]string
	// toxics are the faults in a node's proxies.
	toxics map[string][]string
	nodes  map[string]lab.PlannedNamespace
	seen   map[string]bool
	drawn  map[int]bool
	style  style
	out    strings.Builder
}

// crossed is a link in a direction.
type crossed struct {
	link   int
	toward string
}

// newDrawing prepares a lab; services say what runs in each node.
func newDrawing(plan lab.Plan, services map[string][]string, faults []fault.Fault, s style) *drawing {
	d := &drawing{
		plan: plan, services: services, faults: map[crossed][]string{}, toxics: map[string][]string{}, nodes: map[string]lab.PlannedNamespace{},
		seen: map[string]bool{}, drawn: map[int]bool{}, style: s,
	}
	for _, n := range plan.Namespaces {
		if n.Role == lab.RoleNode || n.Role == lab.RoleSwitch {
			d.nodes[n.Name] = n
		}
	}
	for _, f := range faults {
		for _, t := range plan.Targets {
			if f.Spec.Target != t.Name && f.Spec.Target != t.Lab+"/"+t.Name {
				continue
			}
			if !f.Spec.OnPackets() {
				d.toxics[t.Node] = append(d.toxics[t.Node], f.ID+" "+words(f.Spec))
				continue
			}
			for _, p := range directed(t, directionOf(f.Spec)) {
				if c, ok := d.crossing(p); ok {
					d.faults[c] = append(d.faults[c], f.ID+" "+words(f.Spec))
				}
			}
		}
	}
	return d
}

// directed are the places of a target in a direction.
func directed(t target.Target, direction fault.Direction) []target.Place {
	switch direction {
	case fault.From:
		return []target.Place{t.From}
	case fault.Both:
		return []target.Place{t.To, t.From}
	}
	return []target.Place{t.To}
}

// crossing is the link that a place is on, and where packets that pass there go.
func (d *drawing) crossing(p target.Place) (crossed, bool) {
	for _, n := range d.plan.Namespaces {
		if n.Namespace != p.Namespace {
			continue
		}
		for _, dev := range n.Devices {
			if dev.Name == p.Device {
				return crossed{dev.Link, dev.Toward}, true
			}
		}
	}
	return crossed{}, false
}

// draw writes the tree, or false for a lab that is too big for one.
func (d *drawing) draw(w io.Writer) bool {
	if len(d.nodes) > maxDrawn {
		return false
	}
	for {
		root := d.root()
		if root == "" {
			break
		}
		if !d.node(root, "", "", 0) {
			return false
		}
	}
	for i, l := range d.plan.Links {
		if !d.drawn[i] {
			d.line("", "   ", fmt.Sprintf("%s -%s %s", l.A, d.edge(i), l.B))
			d.details("   ", i)
		}
	}
	_, err := io.WriteString(w, d.out.String())
	return err == nil
}

// root is the node to begin with: the one with most links, if it has three or more, and
// else the first; empty when all are drawn.
func (d *drawing) root() string {
	links := map[string]int{}
	for _, l := range d.plan.Links {
		links[l.A]++
		links[l.B]++
	}
	best := ""
	for _, n := range d.plan.Namespaces {
		if _, ok := d.nodes[n.Name]; !ok || d.seen[n.Name] {
			continue
		}
		if best == "" || links[n.Name] > max(2, links[best]) {
			best = n.Name
		}
	}
	return best
}

// node draws one and what is behind it. lead begins its first line, and rest those below.
func (d *drawing) node(name, lead, rest string, depth int) bool {
	if depth > maxDepth {
		return false
	}
	d.seen[name] = true
	n := d.nodes[name]
	var words []string
	if n.Role == lab.RoleSwitch {
		words = append(words, "switch")
		for _, l := range d.plan.Links {
			if l.A == name || l.B == name {
				for _, p := range l.Subnets {
					words = append(words, p.String())
				}
				break
			}
		}
	}
	for _, dev := range n.Devices {
		for _, a := range dev.Addresses {
			words = append(words, a.Addr().String())
		}
	}
	if n.Forward {
		words = append(words, "forwards")
	}
	words = append(words, d.services[name]...)

	// What is behind it is chosen first, so that the lines know whether more follows.
	type branch struct {
		link int
		to   string
	}
	var branches []branch
	for i, l := range d.plan.Links {
		to := l.B
		if l.B == name {
			to = l.A
		}
		if l.A != name && l.B != name || d.drawn[i] || d.seen[to] {
			continue
		}
		d.drawn[i], d.seen[to] = true, true
		branches = append(branches, branch{i, to})
	}
	bar := "   "
	if len(branches) > 0 {
		bar = "|  "
	}
	d.line(lead, rest+bar, d.style.bold(name)+"  "+strings.Join(words, "  "))
	for _, f := range d.toxics[name] {
		d.line(rest+bar, rest+bar+"  ", d.style.warning("fault: "+f))
	}
	for k, b := range branches {
		corner, below := "|-", "|  "
		if k == len(branches)-1 {
			corner, below = "`-", "   "
		}
		d.details(rest+"|  ", b.link)
		if !d.node(b.to, rest+corner+d.edge(b.link)+" ", rest+below, depth+1) {
			return false
		}
	}
	return true
}

// edge is how a link is called: by its wire.
func (d *drawing) edge(i int) string {
	return d.style.soft("[" + cmp.Or(d.plan.Links[i].Wire, "direct") + "]-")
}

// details writes the lines of a link: its base impairment, and the faults on it.
func (d *drawing) details(lead string, i int) {
	base, faults := d.linkWords(i)
	for _, t := range base {
		d.line(lead, lead+"  ", t)
	}
	for _, t := range faults {
		d.line(lead, lead+"  ", d.style.warning(t))
	}
}

func (d *drawing) linkWords(i int) (base, faults []string) {
	l := d.plan.Links[i]
	if l.AB != nil && l.BA != nil && *l.AB == *l.BA {
		base = append(base, fmt.Sprintf("base both ways: %v", l.AB))
	} else {
		if l.AB != nil {
			base = append(base, fmt.Sprintf("base to %s: %v", l.B, l.AB))
		}
		if l.BA != nil {
			base = append(base, fmt.Sprintf("base to %s: %v", l.A, l.BA))
		}
	}
	for _, to := range []string{l.B, l.A} {
		for _, f := range d.faults[crossed{i, to}] {
			faults = append(faults, fmt.Sprintf("fault to %s: %s", to, f))
		}
	}
	return base, faults
}

// line writes words, broken at drawWidth.
func (d *drawing) line(lead, rest, text string) {
	fields := strings.Split(text, " ")
	row := lead
	empty := true
	for _, f := range fields {
		if !empty && width(row)+1+width(f) > drawWidth {
			fmt.Fprintln(&d.out, strings.TrimRight(row, " "))
			row, empty = rest, true
		}
		switch {
		case empty:
			row += f
		default:
			row += " " + f
		}
		empty = empty && f == ""
	}
	fmt.Fprintln(&d.out, strings.TrimRight(row, " "))
}

// listed writes what a lab that is not drawn consists of.
func (d *drawing) listed(w io.Writer) {
	t := table{head: []string{"NODE", "ADDRESSES", "SERVICES"}}
	for _, n := range d.plan.Namespaces {
		if _, ok := d.nodes[n.Name]; !ok {
			continue
		}
		var addresses []string
		for _, dev := range n.Devices {
			for _, a := range dev.Addresses {
				addresses = append(addresses, a.String())
			}
		}
		t.add(n.Name, dash(strings.Join(addresses, " ")), dash(strings.Join(d.services[n.Name], ", ")))
	}
	t.write(w, d.style)
	links := table{head: []string{"LINK", "WIRE", "SUBNET", "IMPAIRMENTS"}}
	for i, l := range d.plan.Links {
		base, faults := d.linkWords(i)
		links.add(l.A+"-"+l.B, dash(l.Wire), subnetWords(l), dash(strings.Join(append(base, faults...), "; ")))
	}
	fmt.Fprintln(w)
	links.write(w, d.style)
}

func subnetWords(l lab.PlannedLink) string {
	var all []string
	for _, p := range l.Subnets {
		all = append(all, p.String())
	}
	slices.Sort(all)
	return dash(strings.Join(all, " "))
}
