package fault

import (
	"errors"
	"fmt"
	"testing"

	"netemd/qdisc"
)

func TestNth(t *testing.T) {
	loss, ttl := &qdisc.FieldError{Field: "loss", Value: "200%", Want: "less"}, &qdisc.FieldError{Field: "ttl", Want: "more"}
	for want, err := range map[string]error{
		`faults[17].loss "200%": want less`:                              loss,
		"faults[17].loss \"200%\": want less\nfaults[17].ttl: want more": errors.Join(loss, errors.Join(ttl)),
		`faults[17]: x (loss "200%": want less, ttl: want more)`:         fmt.Errorf("x (%w, %w)", loss, ttl),
		`faults[17] "x": want y`:                                         &qdisc.FieldError{Value: "x", Want: "y"},
		"faults[17]: apply: conflict":                                    fmt.Errorf("apply: %w", ErrConflict),
	} {
		got := Nth(17, err)
		if got.Error() != want || errors.Is(err, qdisc.ErrInvalid) != errors.Is(got, qdisc.ErrInvalid) || errors.Is(err, ErrConflict) != errors.Is(got, ErrConflict) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := Nth(0, WithHint(ErrBusy, "wait")); HintOf(got) != "wait" {
		t.Errorf("hint %q", HintOf(got))
	}
}
