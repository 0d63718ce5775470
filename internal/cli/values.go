package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// value is a flag with typed units. kind is how the help calls it.
type value struct {
	set  func(string) error
	text func() string
	kind string
}

func (v *value) Set(s string) error { return v.set(s) }
func (v *value) Type() string       { return v.kind }
func (v *value) String() string {
	if v == nil || v.text == nil {
		return ""
	}
	return v.text()
}

// typed is a flag that fills dst.
func typed[T any](dst *T, kind string, parse func(string) (T, error), format func(T) string) pflag.Value {
	v := &value{kind: kind, set: func(s string) error {
		got, err := parse(s)
		if err == nil {
			*dst = got
		}
		return err
	}}
	if format != nil {
		v.text = func() string { return format(*dst) }
	}
	return v
}

// optional is a flag that stays nil when it is not given, so that "not given" and
// "0" differ.
func optional[T any](dst **T, kind string, parse func(string) (T, error)) pflag.Value {
	return &value{kind: kind, set: func(s string) error {
		got, err := parse(s)
		if err == nil {
			*dst = &got
		}
		return err
	}}
}

// once is a flag with one text that is not empty: an unset
// variable of a shell must not mean what leaving the flag out means.
func once(dst *string, kind, want string) pflag.Value {
	return onceParsed(dst, kind, want, func(s string) (string, error) { return s, nil })
}

func onceParsed(dst *string, kind, want string, parse func(string) (string, error)) pflag.Value {
	given := ""
	return typed(dst, kind, func(s string) (string, error) {
		switch {
		case strings.TrimSpace(s) == "":
			return "", &qdisc.FieldError{Value: s, Want: want}
		case given != "" && s != given: // a shell's completion reads a line twice
			return "", &qdisc.FieldError{Value: s, Want: "it once"}
		}
		given = s
		return parse(s)
	}, nil)
}

// What the flags of names want.
const (
	wantTarget    = "the name of a target, as 'netemctl target list' shows it"
	wantDevice    = "the name of a device"
	wantNamespace = "the name of a network namespace, the path of its file or pid:N; leave the flag out for the agent's own"
	wantCgroup    = "the path of a cgroup below the root of its hierarchy, such as /system.slice/pg.service, or the name of a systemd unit"
	wantFolder    = "the path of a folder, which is made if it is missing"
	wantLab       = "the name of a lab, such as pg"
)

// yes is a flag without a value, that stays nil when it is not given.
func yes(dst **bool) pflag.Value {
	return &value{kind: "bool", set: func(s string) error {
		b, err := strconv.ParseBool(s)
		if err != nil {
			return &qdisc.FieldError{Value: s, Want: "true or false"}
		}
		*dst = &b
		return nil
	}}
}

// signed reads a number of bytes that may be negative.
func signed(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil {
		return 0, &qdisc.FieldError{Value: s, Want: "a whole number of bytes, such as 14 or -4"}
	}
	return int32(n), nil
}

// parseRateOrNone reads a rate, or 0bit for none.
func parseRateOrNone(s string) (qdisc.Rate, error) {
	if s == "0bit" {
		return 0, nil
	}
	return qdisc.ParseRate(s)
}

// one is a flag with a fixed set of words, which the shell completes.
func one[T ~string](cmd *cobra.Command, dst *T, name, usage string, allowed ...T) {
	parse := func(s string) (T, error) {
		for _, w := range allowed {
			if T(s) == w {
				return w, nil
			}
		}
		return "", &qdisc.FieldError{Value: s, Want: either(allowed)}
	}
	cmd.Flags().Var(typed(dst, choices(allowed), parse, func(t T) string { return string(t) }), name, usage)
	completeWords(cmd, name, texts(allowed))
}

func texts[T ~string](ws []T) []string {
	out := make([]string, len(ws))
	for i, w := range ws {
		out[i] = string(w)
	}
	return out
}

func choices[T ~string](ws []T) string { return strings.Join(texts(ws), "|") }

// either lists words as a sentence does: "to, from or both".
func either[T ~string](ws []T) string {
	s := texts(ws)
	if len(s) < 2 {
		return strings.Join(s, "")
	}
	return strings.Join(s[:len(s)-1], ", ") + " or " + s[len(s)-1]
}

// integer reads a whole number in a range.
func integer(least, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return 0, &qdisc.FieldError{Value: s, Want: fmt.Sprintf("a whole number from %d to %d", least, most)}
		}
		return n, nil
	}
}

// unsigned reads a whole number that is least at least.
func unsigned[T uint32 | uint64](bits int, least T) func(string) (T, error) {
	return func(s string) (T, error) {
		n, err := strconv.ParseUint(s, 10, bits)
		if err != nil || T(n) < least {
			return 0, &qdisc.FieldError{Value: s, Want: fmt.Sprintf("a whole number from %d to %d", least, ^T(0))}
		}
		return T(n), nil
	}
}

// positive is a duration above 0 s.
func positive(s string) (time.Duration, error) {
	d, err := qdisc.ParseDuration(s)
	if err == nil && d == 0 || zero(s) || err != nil && strings.HasPrefix(s, "-") {
		return 0, &qdisc.FieldError{Value: s, Want: "a duration above 0s, such as 5s"}
	}
	return d, err
}

// named gives a value's error the name under which the user knows it, and a hint
// where only the unit is missing.
func named(name string, err error, text string) error {
	var f *qdisc.FieldError
	if !errors.As(err, &f) {
		if err == nil {
			return nil
		}
		return fmt.Errorf("%s %q: %w", name, text, err)
	}
	out := *f
	out.Field = name
	if share, ok := strings.CutSuffix(text, "%"); ok && strings.Contains(f.Want, "percentage") {
		if hint := spelled(share); hint != "" {
			return fault.WithHint(&out, hint)
		}
	}
	if n, ok := bare(text); ok {
		switch {
		case zero(n) && strings.Contains(f.Want, "above 0"): // no unit makes it good
		case strings.Contains(f.Want, "percentage"):
			return fault.WithHint(&out, percentHint(n))
		case name == "--ttl":
			return fault.WithHint(&out, fmt.Sprintf("write %ss or %sm", n, n))
		case strings.Contains(f.Want, "an amount"):
			return fault.WithHint(&out, fmt.Sprintf("write %sB", n))
		case strings.Contains(f.Want, "duration"):
			return fault.WithHint(&out, fmt.Sprintf("write %sms or %ss", n, n))
		}
	}
	return &out
}

// spelled says why a share within 0..100 is none all the same, "" if it is out of
// range or no number.
func spelled(number string) string {
	v, err := strconv.ParseFloat(number, 64)
	switch p := qdisc.Percent(v); {
	case err != nil || !(v > 0 && v <= 100):
		return ""
	case p.Fraction() == 0:
		return "the kernel knows no share that small: from 0.00000002%"
	default:
		return fmt.Sprintf("write %v", p)
	}
}

// zero reports that s is 0 without a unit.
func zero(s string) bool {
	n, ok := bare(s)
	v, err := strconv.ParseFloat(n, 64)
	return ok && err == nil && v == 0
}

// bare reports that s is a number without a unit.
func bare(s string) (string, bool) {
	_, err := strconv.ParseFloat(s, 64)
	if err != nil || strings.HasPrefix(s, "-") || strings.ContainsAny(s, "eEnNxX_+") {
		return "", false
	}
	return s, true
}

// percentHint says how a bare number is written as a percentage; one below 1 may have meant a
// share.
func percentHint(n string) string {
	if v, err := strconv.ParseFloat(n, 64); err == nil && v > 0 && v < 1 {
		return fmt.Sprintf("write %s%%, or %s%%", strconv.FormatFloat(100*v, 'g', 10, 64), n)
	}
	return fmt.Sprintf("write %s%%", n)
}
