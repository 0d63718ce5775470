package target

import (
	"slices"
	"strings"

	"netemd/qdisc"
)

// tcp is the one protocol with flags.
const tcp = 6

// flagNames are the bits of a TCP header's flags, from the lowest (RFC 9293, 3.1).
var flagNames = []string{"fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr"}

// FlagNames are the names of the flags whose bits are set, from the lowest.
func FlagNames(bits uint8) []string {
	var names []string
	for i, name := range flagNames {
		if bits&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// FlagsText says flags as ParseFlags reads them: "syn,!ack"; empty for none.
func FlagsText(set, unset uint8) string {
	names := FlagNames(set)
	for _, name := range FlagNames(unset) {
		names = append(names, "!"+name)
	}
	return strings.Join(names, ",")
}

// ParseFlags reads the names of TCP flags with commas between; those with a '!' before
// are to be clear, the others to be set: "syn,!ack". The error is a *qdisc.FieldError
// without a field.
func ParseFlags(s string) (set, unset uint8, err error) {
	for word := range strings.SplitSeq(s, ",") {
		name, not := strings.CutPrefix(word, "!")
		i := slices.Index(flagNames, strings.ToLower(name))
		switch {
		case i < 0:
			return 0, 0, &qdisc.FieldError{Value: s, Want: "TCP flags with commas between, of " + strings.Join(flagNames, ", ") + "; '!' before one that is not set, such as syn,!ack"}
		case not:
			unset |= 1 << i
		default:
			set |= 1 << i
		}
	}
	if both := set & unset; both != 0 {
		return 0, 0, &qdisc.FieldError{Value: s, Want: "each flag either set or clear; no packet has " + FlagsText(both, both)}
	}
	return set, unset, nil
}

// flagged reports whether f selects by TCP flags.
func (f Flow) flagged() bool { return f.FlagsSet|f.FlagsClear != 0 }

// flags refuses what no packet has.
func (v *validation) flags(s Selector) {
	switch {
	case s.FlagsSet|s.FlagsClear == 0:
	case s.Protocol != tcp:
		v.refuse("tcp-flags", FlagsText(s.FlagsSet, s.FlagsClear), "protocol tcp: no other has them")
	case s.FlagsSet&s.FlagsClear != 0:
		v.refuse("tcp-flags", FlagsText(s.FlagsSet, s.FlagsClear), "each flag either set or clear")
	}
}
