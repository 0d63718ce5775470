package qdisc

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// prefixes are the factors of a unit, largest first.
var prefixes = []struct {
	name   string
	factor uint64
}{
	{"t", 1e12}, {"g", 1e9}, {"m", 1e6}, {"k", 1e3},
	{"ti", 1 << 40}, {"gi", 1 << 30}, {"mi", 1 << 20}, {"ki", 1 << 10},
	{"", 1},
}

// ParseRate reads bits per second with "bit" ("10mbit", "1gibit", "1mbit/s") and
// bytes per second with a capital B ("1MBps", "64KiB/s"). Prefixes k m g t are
// powers of 1000, ki mi gi ti of 1024, in upper or lower case.
//
// "mbps" and the like are refused with both readings, since tc takes them for
// bytes and most others for bits; so are a bare number, a rate below 8 bit/s (the
// kernel counts whole bytes) and one above MaxRate. What is no whole number of
// bytes per second is rounded to the nearest. The error is a *FieldError without
// a Field.
func ParseRate(s string) (Rate, error) {
	bad := &FieldError{Value: s, Want: wantRate}
	value, unit, ok := split(s)
	if !ok {
		return 0, bad
	}
	// bits: "mbit", "mbit/s"; bytes: "MB/s", "MBps"; anything near is ambiguous
	stem, slash := strings.CutSuffix(unit, "/s")
	if prefix, ok := cutSuffixFold(stem, "bit"); ok {
		return rateOf(value, prefix, 8, bad)
	}
	per := slash
	if !slash {
		stem, per = cutSuffixFold(unit, "ps")
	}
	prefix, isByte := cutSuffixFold(stem, "b")
	factor, known := factorOf(prefix)
	if !per || !isByte || !known {
		return 0, bad
	}
	if strings.HasSuffix(stem, "B") && (slash || strings.HasSuffix(unit, "ps")) {
		return rateOf(value, prefix, 1, bad)
	}
	number, _ := strings.CutSuffix(s, unit)
	prefix = strings.ToLower(prefix)
	return 0, &FieldError{Value: s, Want: fmt.Sprintf(
		"%s%sbit (bits, %s B/s) or %s%sBps (bytes, %s B/s); tc takes %s for bytes, most others for bits",
		number, prefix, amount(value*float64(factor)/8), number, bytePrefix(prefix), amount(value*float64(factor)), unit)}
}

func rateOf(value float64, prefix string, perByte float64, bad error) (Rate, error) {
	factor, ok := factorOf(prefix)
	v := value * float64(factor) / perByte
	if !ok || v < 1 || v > float64(MaxRate) {
		return 0, bad
	}
	return Rate(math.Round(v)), nil
}

// String is the shortest exact text in bits per second: "1mbit", "1500kbit".
func (r Rate) String() string {
	return shortest(uint64(r)*8, "bit", func(prefix string) string { return prefix })
}

// ParseBytes reads an amount of bytes: "1500B", "64kB" (1000), "64KiB" (1024).
// The B must be a capital letter; a bare number and tc's "64k" (1024) or "64kb"
// are refused, and so is what is no whole number of bytes or above MaxBytes. The
// error is a *FieldError without a Field.
func ParseBytes(s string) (Bytes, error) {
	value, unit, ok := split(s)
	prefix, isByte := strings.CutSuffix(unit, "B")
	factor, known := factorOf(prefix)
	v := value * float64(factor)
	if !ok || !isByte || !known || v != math.Trunc(v) || v > float64(MaxBytes) {
		return 0, &FieldError{Value: s, Want: wantBytes}
	}
	return Bytes(v), nil
}

// String is the shortest exact text: "1500B", "64KiB".
func (b Bytes) String() string { return shortest(uint64(b), "B", bytePrefix) }

// split cuts a text into its number and its unit.
func split(s string) (value float64, unit string, ok bool) {
	i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		return 0, "", false
	}
	value, ok = decimal(s[:i])
	return value, s[i:], ok
}

func factorOf(prefix string) (uint64, bool) {
	for _, p := range prefixes {
		if strings.EqualFold(p.name, prefix) {
			return p.factor, true
		}
	}
	return 0, false
}

// bytePrefix is how a prefix is written before a B: kB, MB, KiB.
func bytePrefix(prefix string) string {
	switch prefix {
	case "", "k":
		return prefix
	}
	return strings.ToUpper(prefix[:1]) + prefix[1:]
}

func shortest(v uint64, unit string, style func(string) string) string {
	best := strconv.FormatUint(v, 10) + unit
	if v == 0 {
		return best
	}
	for _, p := range prefixes {
		if v%p.factor != 0 {
			continue
		}
		if s := strconv.FormatUint(v/p.factor, 10) + style(p.name) + unit; len(s) < len(best) {
			best = s
		}
	}
	return best
}

// cutSuffixFold is strings.CutSuffix for ASCII in upper or lower case.
func cutSuffixFold(s, suffix string) (string, bool) {
	if cut := len(s) - len(suffix); cut >= 0 && strings.EqualFold(s[cut:], suffix) {
		return s[:cut], true
	}
	return s, false
}

func amount(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
