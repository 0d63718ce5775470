package target

import "netemd/qdisc"

// TellApart returns a *qdisc.FieldError when the packets that come from t cannot be
// told from those that go to it: both directions pass one hook, as on a loopback
// device, and nothing in the match says which is which.
func (t Target) TellApart() error {
	if t.To.Index != t.From.Index || t.To.Cookie != t.From.Cookie || t.To.Namespace != t.From.Namespace || t.To.Hook != t.From.Hook ||
		!t.To.Match.Overlaps(t.From.Match) || t.To.Match.Mirrors(t.From.Match) {
		return nil
	}
	return &qdisc.FieldError{
		Field: "direction",
		Want: "to: on a loopback device every packet passes egress, whichever way it goes, so 'to' has both directions already; " +
			"a port (or two ends that differ) would tell them apart",
	}
}
