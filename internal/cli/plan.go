package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/internal/lab/labfile"
	"netemd/internal/target"
	"netemd/qdisc"
)

// placeSeparator stands between the places of a plan.
const placeSeparator = "; "

// planView is a dry run as JSON.
type planView struct {
	Engine fault.Engine `json:"engine"`
	// Placement is one phrase for each place, joined by "; ".
	Placement string          `json:"placement"`
	Direction fault.Direction `json:"direction"`
	// Match says which packets are meant at each place.
	Match      string      `json:"match"`
	Operations []operation `json:"operations"`
	// Offload is what --offload off would switch off, and put back at the fault's end.
	Offload  []offloadPlan `json:"offload,omitempty"`
	Warnings []string      `json:"warnings"`
}

// operation is one thing that would be done to one device.
type operation struct {
	// TCX says what tc has no words for: what the ebpf engine would do, or at a device
	// that is not netemd's what netem would where it takes tcx; TC is then the same fault
	// in tc's words.
	TCX string `json:"tcx,omitempty"`
	// Before are commands of ip that a person would type before TC.
	Before []string `json:"before,omitempty"`
	// TC is what a person would type in the namespace Netns.
	TC string `json:"tc"`
	// OptionsHex is the payload of TCA_OPTIONS of a netem: struct tc_netem_qopt, then
	// the nested attributes; empty for what is no netem.
	OptionsHex string `json:"options_hex"`
	Netns      string `json:"netns"`
	Device     string `json:"device"`
}

// planFault says what a fault would do, without root, and without an agent; where one
// answers, it is asked what its kernel has.
func (a *app) planFault(ctx context.Context, spec fault.Spec) error {
	places, err := a.planPlaces(ctx, spec)
	if err != nil {
		return err
	}
	p, err := plan(spec, places, a.kernelOf(ctx, spec, places))
	if err != nil {
		return err
	}
	if a.output == outTable {
		a.warn(p.Warnings)
	}
	return a.emit(answer{kind: "plan", data: p, table: func(w io.Writer, s style) {
		rows := p.head(w, s, spec)
		for _, o := range p.Operations {
			rows = append(rows, [2]string{"tcx", o.TCX})
			for _, b := range o.Before {
				rows = append(rows, [2]string{"ip", inNetns(b, o.Netns)})
			}
			rows = append(rows, [2]string{"tc", inNetns(o.TC, o.Netns)}, [2]string{"options", o.OptionsHex})
		}
		pairs(w, s, rows)
	}})
}

// head writes the title and returns the rows that all plans begin with.
func (p planView) head(w io.Writer, s style, spec fault.Spec) [][2]string {
	fmt.Fprintf(w, "plan: %s (nothing was changed)\n", s.bold(words(spec)))
	rows := [][2]string{{"engine", string(p.Engine)}}
	for place := range strings.SplitSeq(p.Placement, placeSeparator) {
		rows = append(rows, [2]string{"placement", place})
	}
	if spec.Selector != nil {
		rows = append(rows, [2]string{"match", p.Match})
	}
	for _, o := range p.Offload {
		for _, c := range o.Commands {
			rows = append(rows, [2]string{"offload", inNetns(c, o.Netns)})
		}
	}
	return rows
}

func inNetns(command, namespace string) string {
	if namespace == "" {
		return command
	}
	return fmt.Sprintf("%s  (in netns %s)", command, namespace)
}

// planPlaces finds where a fault would sit. A host name is looked up here, as the
// agent would.
func (a *app) planPlaces(ctx context.Context, spec fault.Spec) ([]target.Place, error) {
	if spec.Selector == nil {
		t, err := a.planTarget(ctx, spec.Target)
		return placesOf(t, directionOf(spec)), err
	}
	m, err := spec.Selector.Match(ctx, a.env.LookupHost)
	if err != nil {
		return nil, err
	}
	to := target.Place{Namespace: spec.Selector.Namespace, Device: spec.Selector.Device, Hook: target.Egress, Match: m}
	from := to
	from.Match = m.Reverse()
	if to.Device != loopback {
		from.Hook = target.Ingress
	}
	t := target.Target{To: to, From: from}
	places := placesOf(t, directionOf(spec))
	if spec.Asymmetric() && len(places) == 1 {
		return nil, &qdisc.FieldError{Field: "--direction", Value: string(spec.Direction),
			Want: "egress or ingress, or the same impairment of both: packets of both directions pass one place of " + to.Device + ", and are not told apart there"}
	}
	if directionOf(spec) == fault.From || len(places) > 1 {
		if err := t.TellApart(); err != nil {
			return nil, err
		}
	}
	return places, nil
}

// planTarget finds a target of the built-in labs without an agent; any other is the agent's to
// find.
func (a *app) planTarget(ctx context.Context, name string) (target.Target, error) {
	t, err := builtinTarget(name)
	if err == nil {
		return t, nil
	}
	agent, dialing := a.dial()
	if dialing != nil {
		if target.Inline(name) {
			return t, dialing
		}
		return t, err
	}
	defer agent.Close()
	return agent.Resolve(ctx, name)
}

// builtinTarget finds a target of the built-in labs.
func builtinTarget(name string) (target.Target, error) {
	var known []string
	for _, d := range labfile.Builtins() {
		ts, err := d.Resolve()
		if err != nil {
			return target.Target{}, err
		}
		for _, t := range ts {
			if t.Name == name || t.Lab+"/"+t.Name == name {
				return t, nil
			}
			if !slices.Contains(known, t.Name) {
				known = append(known, t.Name)
			}
		}
	}
	return target.Target{}, fmt.Errorf("%w %q, known: %s", target.ErrUnknown, name, qdisc.Few(known))
}

func plan(spec fault.Spec, places []target.Place, k kernel) (planView, error) {
	p := planView{
		Engine: spec.Engine, Direction: directionOf(spec), Operations: []operation{}, Warnings: []string{},
	}
	if p.Engine == "" {
		p.Engine = fault.Auto
	}
	var phrases, matches, filters []string
	for i, place := range places {
		n := spec.PacketAt(i).Normalize()
		options, err := n.MarshalOptions()
		if err != nil {
			return planView{}, err
		}
		phrases = append(phrases, fmt.Sprintf("%v (one-way, %s, passes per round trip %d)", place, place.Hook, passes(place)))
		matches = append(matches, matchWords(spec, place.Match))
		if spec.Offload == fault.OffloadOff {
			p.Offload = withOffload(p.Offload, place)
		}
		o := operation{
			TC:    fmt.Sprintf("tc qdisc replace dev %s root netem %s", place.Device, n.TC()),
			Netns: place.Namespace, Device: place.Device, OptionsHex: hex.EncodeToString(options),
		}
		if p.Engine == fault.EBPF {
			o.TCX = tcxWords(place, matchWords(spec, place.Match), n)
		}
		if place.Owned {
			p.Operations = append(p.Operations, o)
			continue
		}
		if p.Engine != fault.EBPF {
			var note string
			o.TCX, note = k.hook(place, matchWords(spec, place.Match), n)
			filters = append(filters, note)
		}
		ops, notes := redirect(place, i, o, n.TC())
		p.Operations = append(p.Operations, ops...)
		filters = append(filters, notes...)
	}
	p.Placement = strings.Join(phrases, placeSeparator)
	p.Match = strings.Join(slices.Compact(matches), placeSeparator)
	for i := range places {
		n := spec.PacketAt(i).Normalize()
		for _, w := range append(n.Warnings(), planWarnings(spec, p.Engine, n)...) {
			if !slices.Contains(p.Warnings, w) {
				p.Warnings = append(p.Warnings, w)
			}
		}
	}
	slices.Sort(filters)
	p.Warnings = append(p.Warnings, slices.Compact(filters)...)
	return p, nil
}

// matchWords says which packets a place takes. Of a whole device ARP and neighbour
// discovery are left alone, unless that is asked for.
func matchWords(spec fault.Spec, m target.Match) string {
	const all = "all packets"
	text := m.String()
	if spec.Selector != nil && len(m.Include) == 0 && !m.Control {
		return all + " but ARP and neighbour discovery" + strings.TrimPrefix(text, all)
	}
	return text
}

// placesOf are those that the agent would take: what passes one hook in both directions,
// and is the same there, is one.
func placesOf(t target.Target, d fault.Direction) []target.Place {
	switch {
	case d == fault.From:
		return []target.Place{t.From}
	case d == fault.Both && t.To.Key() != t.From.Key():
		return []target.Place{t.To, t.From}
	}
	return []target.Place{t.To}
}

// passes is how often a packet and its answer pass a place: on loopback both pass
// the one egress.
func passes(p target.Place) int {
	if p.Device == loopback {
		return 2
	}
	return 1
}

// loopback is the device on which every packet passes egress.
const loopback = "lo"

func planWarnings(spec fault.Spec, e fault.Engine, n qdisc.Netem) []string {
	var out []string
	if e == fault.Auto {
		out = append(out, "engine auto: netemd chooses at apply, by a real try; shown is what netem would be told")
	}
	if spec.Offload == "" && (n.Loss > 0 || lossModel(n) || n.Reorder > 0 || n.Rate > 0 && n.Rate != qdisc.OrderRate) {
		out = append(out, "where segmentation offload is on, one packet may be a super-packet of up to 64 KB, "+
			"which a loss or reordering takes whole, and a rate holds up whole")
	}
	out = append(out, protectionWarnings(spec)...)
	return append(out, oldTC(n)...)
}

// protectionWarnings say what else netemd does, and refuses to do.
func protectionWarnings(spec fault.Spec) []string {
	var out []string
	if spec.Offload == fault.OffloadOff {
		out = append(out, "--offload off: of what makes super-packets, netemd switches off only what is on, "+
			"on the device and on the other end of a veth pair, and puts it back as it was when the fault ends")
	}
	// What happens in other namespaces than the agent's cuts nobody off.
	if s := spec.Selector; s != nil && s.Namespace == "" && len(spec.Force) == 0 {
		all := ""
		if takesAll(*s) && len(s.ExcludePeers)+len(s.ExcludePorts) == 0 {
			all = "all of a device with a default route, and "
		}
		out = append(out, fmt.Sprintf("netemd refuses %swhat would cut off its own connection or an ssh session on %s, unless --force names that", all, s.Name()))
	}
	return out
}

// What the tc of iproute2 6.1 counts times in, and up to where.
const (
	tcTick = 64 * time.Nanosecond
	tcMost = math.MaxUint32 * tcTick
)

// oldTC says where the tc of iproute2 6.1, as in Debian 12, cannot run the line of
// the plan, or makes something else of it. netemd itself sends everything.
func oldTC(n qdisc.Netem) []string {
	var out []string
	warn := func(format string, args ...any) {
		out = append(out, "the tc line: tc of iproute2 6.1 (Debian 12) "+fmt.Sprintf(format, args...))
	}
	for _, t := range []struct {
		name string
		time time.Duration
	}{{"delay", n.Delay}, {"jitter", n.Jitter}} {
		switch {
		case t.time > tcMost:
			warn("has no %s above 274 s", t.name)
		case t.time%time.Microsecond != 0:
			warn("has no %s in ns, only in whole us", t.name)
		case t.time%tcTick != 0:
			warn("cuts the %s %s to %s, a multiple of 64 ns", t.name, qdisc.FormatDuration(t.time), qdisc.FormatDuration(t.time.Truncate(tcTick)))
		}
	}
	if n.DuplicateCorrelation != 0 && n.DelayCorrelation == 0 && n.LossCorrelation == 0 && n.ReorderCorrelation == 0 && n.CorruptCorrelation == 0 {
		warn("does not send a correlation of duplicates alone")
	}
	if n.Seed != 0 {
		warn("does not know seed, which needs 6.6 or later")
	}
	return out
}

// tcxWords says what the ebpf engine does at a place.
func tcxWords(p target.Place, match string, n qdisc.Netem) string {
	mode := "drop in the program"
	if n.Queues() {
		mode = "divert to the engine's queue"
	}
	return fmt.Sprintf("attach at the head of tcx %s of %s, match %s, %s: %v", p.Hook, p.Device, match, mode, n)
}
