package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"netemd/internal/content"
	"netemd/internal/fault"
)

// contentPlan is a dry run of a fault on chosen packets as JSON. No words of tc's do what
// it does, so that it has no operations, but what the engine would attach.
type contentPlan struct {
	planView
	Rule *ruleView `json:"content"`
	// TCX says what would be attached at each place.
	TCX []string `json:"tcx"`
}

// planContent says what a fault on chosen packets would do.
func (a *app) planContent(ctx context.Context, spec fault.Spec) error {
	places, err := a.planPlaces(ctx, spec)
	if err != nil {
		return err
	}
	r := spec.Content
	p := contentPlan{Rule: viewRule(*r), planView: planView{
		Engine: fault.EBPF, Direction: directionOf(spec), Operations: []operation{},
		Warnings: []string{"tc has no words for this: only the ebpf engine acts on chosen packets, also where netem carries other faults"},
	}}
	var phrases, matches []string
	for _, place := range places {
		match := matchWords(spec, place.Match)
		phrases = append(phrases, fmt.Sprintf("%v (one-way, %s, passes per round trip %d)", place, place.Hook, passes(place)))
		matches = append(matches, match)
		p.TCX = append(p.TCX, fmt.Sprintf("attach at the head of tcx %s of %s, match %s, %s", place.Hook, place.Device, match, r))
		if spec.Offload == fault.OffloadOff {
			p.Offload = withOffload(p.Offload, place)
		}
	}
	p.Placement = strings.Join(phrases, placeSeparator)
	p.Match = strings.Join(slices.Compact(matches), placeSeparator)
	p.Warnings = append(p.Warnings, contentPlanWarnings(spec, len(places))...)
	if a.output == outTable {
		a.warn(p.Warnings)
	}
	return a.emit(answer{kind: "plan", data: p, table: func(w io.Writer, s style) {
		rows := p.head(w, s, spec)
		for _, t := range p.TCX {
			rows = append(rows, [2]string{"tcx", t})
		}
		pairs(w, s, rows)
	}})
}

func contentPlanWarnings(spec fault.Spec, places int) []string {
	var out []string
	switch spec.Content.Kind {
	case content.Data, content.Every, content.Match, content.Retransmit:
		if spec.Offload == "" {
			out = append(out, "where segmentation offload is on, one packet may be a super-packet of up to 64 KB, which is acted on whole; --offload off avoids that")
		}
	}
	if c := spec.Content; places > 1 && c.Count > 0 && !c.PerConnection {
		out = append(out, fmt.Sprintf("each direction counts by itself, up to %d", c.Count))
	}
	return append(out, protectionWarnings(spec)...)
}
