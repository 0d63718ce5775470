package qdisc

import "strings"

const wantSlot = "the least and perhaps the largest time between slots, such as 10ms or 10ms,20ms, or a distribution with delay and jitter, such as normal,10ms,5ms"

// ParseSlot reads the times between slots: "10ms", "10ms,20ms" (from the least to the
// largest) or "normal,10ms,5ms" (a distribution, its delay and its jitter; "uniform" is
// the same as the times from delay-jitter to delay+jitter). The error is a *FieldError
// without a Field.
func ParseSlot(s string) (Slot, error) {
	bad := &FieldError{Value: s, Want: wantSlot}
	texts := strings.Split(s, ",")
	shape := Distribution("")
	if d, err := ParseDistribution(texts[0]); err == nil {
		shape, texts = d, texts[1:]
	}
	if least := 1 + int(flag(shape != "")); len(texts) < least || len(texts) > 2 {
		return Slot{}, bad
	}
	first, err := ParseDuration(texts[0])
	if err != nil {
		return Slot{}, bad
	}
	second := first
	if len(texts) == 2 {
		if second, err = ParseDuration(texts[1]); err != nil {
			return Slot{}, bad
		}
	}
	if shape == Uniform && second > first {
		return Slot{}, bad
	}
	switch shape {
	case "":
		return Slot{MinDelay: first, MaxDelay: second}, nil
	case Uniform:
		return Slot{MinDelay: first - second, MaxDelay: first + second}, nil
	}
	return Slot{Distribution: shape, Delay: first, Jitter: second}, nil
}
