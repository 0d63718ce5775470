package content

import (
	"errors"
	"fmt"
	"time"

	"netemd/qdisc"
)

// Validate returns everything that is wrong with r, each as a *qdisc.FieldError of one
// of the fields kind, n, expr, count, per_connection and hold.
func (r Rule) Validate() error {
	var errs []error
	refuse := func(field, value, want string) {
		errs = append(errs, &qdisc.FieldError{Field: field, Value: value, Want: want})
	}
	switch r.Kind {
	case SYN, SYNACK, FIN, RST, Retransmit, Match, Data, Every:
	default:
		refuse("kind", string(r.Kind), "syn, synack, fin, rst, data, retransmit, every or match")
		return errors.Join(errs...)
	}
	switch numbered := r.Kind == Data || r.Kind == Every; {
	case numbered && (r.N == 0 || r.N > MaxN):
		refuse("n", fmt.Sprint(r.N), fmt.Sprintf("1 to %d: which one %s:N means", uint32(MaxN), r.Kind))
	case !numbered && r.N != 0:
		refuse("n", fmt.Sprint(r.N), fmt.Sprintf("0: %s has no number", r.Kind))
	}
	if r.Kind == Match {
		if _, err := ParseExpr(r.Expr); err != nil {
			errs = append(errs, err)
		}
	} else if r.Expr != "" {
		refuse("expr", r.Expr, "nothing: it belongs to the kind match")
	}
	if r.Count > MaxCount {
		refuse("count", fmt.Sprint(r.Count), fmt.Sprintf("0 for no end, or 1 to %d", uint32(MaxCount)))
	}
	if r.PerConnection && r.Count == 0 && r.Kind != Every {
		refuse("per_connection", "", "a count, which each connection has by itself; or the kind every, which counts so")
	}
	if r.Hold != 0 && (r.Hold < MinHold || r.Hold > MaxHold) {
		refuse("hold", qdisc.FormatDuration(r.Hold), HoldRange())
	}
	return errors.Join(errs...)
}

// HoldRange says how long packets are held: "100us to 1m".
func HoldRange() string {
	return qdisc.FormatDuration(MinHold) + " to " + qdisc.FormatDuration(MaxHold)
}

// MinHold is the shortest time that packets are held: less is lost in the engine's own.
const MinHold = 100 * time.Microsecond
