package cli

import (
	"fmt"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// ruleView is a rule as JSON.
type ruleView struct {
	Action string `json:"action"`
	// What is the kind as it is typed: "data:3".
	What       string       `json:"what"`
	Kind       content.Kind `json:"kind"`
	N          uint32       `json:"n,omitempty"`
	Expression string       `json:"expression,omitempty"`
	// Count is null for no end.
	Count         *uint32 `json:"count_packets"`
	PerConnection bool    `json:"per_connection"`
	HoldNS        *int64  `json:"hold_ns,omitempty"`
}

func viewRule(r content.Rule) *ruleView {
	v := &ruleView{Action: r.Action(), What: r.What(), Kind: r.Kind, N: r.N, Expression: r.Expr, PerConnection: r.PerConnection}
	if r.Count > 0 {
		v.Count = &r.Count
	}
	if r.Hold > 0 {
		v.HoldNS = new(int64(r.Hold))
	}
	return v
}

// ruleWords says what a rule does, without how often: "hold data:3 for 200ms".
func ruleWords(r content.Rule) string {
	s := r.Action() + " " + r.What()
	if r.Hold > 0 {
		s += " for " + qdisc.FormatDuration(r.Hold)
	}
	return s
}

// countWords says how often, to be put behind where: ", 1 packet of each connection".
func countWords(r *content.Rule) string {
	if r == nil {
		return ""
	}
	s := ""
	if r.Count > 0 {
		s = ", " + packetsText(uint64(r.Count))
	}
	switch {
	case r.PerConnection && r.Count > 0:
		s += " of each connection"
	case r.PerConnection:
		s += ", each connection by itself"
	}
	return s
}

func packetsText(n uint64) string {
	if n == 1 {
		return "1 packet"
	}
	return fmt.Sprintf("%d packets", n)
}

// chosenText says how many packets a rule acted on, and whether it still does, "" for a
// fault without one.
func chosenText(f fault.Fault) string {
	r, n := f.Spec.Content, f.Chosen()
	if r == nil {
		return ""
	}
	s := packetsText(n)
	// Two places count by themselves.
	if most := uint64(r.Count) * uint64(max(1, len(f.Placement))); r.Count > 0 && !r.PerConnection && n >= most {
		s += ", all that were asked for: the rule rests"
	}
	if n == 0 {
		return "none yet; as it happens: netemctl packets " + f.ID + " --follow"
	}
	return s + "; which: netemctl packets " + f.ID
}
