package qdisc

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// Percent is a share in percent, 0..100. Its text form always carries the unit
// ("20%"); a bare number is refused, since it may mean a fraction.
type Percent float64

// Rate is a data rate in bytes per second.
type Rate uint64

// Bytes is an amount of data.
type Bytes uint64

// MaxRate is the fastest rate that ParseRate takes: 100 Tbit/s.
const MaxRate Rate = 12_500_000_000_000

// MaxBytes is the largest amount that ParseBytes takes: 1 PB. Every amount up to
// it is exact in a float64.
const MaxBytes Bytes = 1_000_000_000_000_000

const (
	wantPercent = "a percentage from 0% to 100%, such as 20% or 0.1%"
	wantRate    = "a rate from 8bit to 100tbit, such as 10mbit (bits per second) or 1MBps (bytes per second)"
	wantBytes   = "an amount from 0B to 1000TB, such as 1500B, 64kB or 64KiB"
	// wantLess is of a duration that is one, but longer than time.Duration holds.
	wantLess     = "a duration of at most 2562047h"
	wantDuration = "a duration of 0s or more with its unit, such as 100ms, 1.5s or 10m"
	wantShape    = "uniform, normal, pareto, paretonormal or custom"
)

// ParsePercent reads "20%". Without the sign, with a decimal comma, outside
// 0%..100%, or so small that the kernel's 32-bit fraction would be 0, the text
// is refused with a *FieldError without a Field.
func ParsePercent(s string) (Percent, error) {
	number, ok := strings.CutSuffix(s, "%")
	v, isNumber := decimal(number)
	p := Percent(v)
	if !ok || !isNumber || !p.valid() {
		return 0, &FieldError{Value: s, Want: wantPercent}
	}
	return p, nil
}

// valid reports whether p is in range and not cut to 0 by the encoding.
func (p Percent) valid() bool {
	return p == 0 || p > 0 && p <= 100 && p.Fraction() != 0
}

// String is the shortest text that ParsePercent reads back as p: "0.01%".
func (p Percent) String() string {
	return strconv.FormatFloat(float64(p), 'f', -1, 64) + "%"
}

// Fraction is p as the kernel has it, a share of 2^32-1, rounded as tc does, to
// the nearest and half to even: 0.1% is 4294967 and 100% is 4294967295. What is
// out of range is cut to it.
func (p Percent) Fraction() uint32 {
	switch {
	case !(p > 0): // NaN too
		return 0
	case p >= 100:
		return math.MaxUint32
	}
	return uint32(math.RoundToEven(float64(p) / 100 * math.MaxUint32))
}

// PercentOf is the share that the kernel calls u: the shortest decimal number
// that is encoded as u, so that what was set as 5% also reads back as 5%.
func PercentOf(u uint32) Percent {
	exact := float64(u) / math.MaxUint32 * 100
	for digits := range 9 {
		v, err := strconv.ParseFloat(strconv.FormatFloat(exact, 'f', digits, 64), 64)
		if p := Percent(v); err == nil && p.Fraction() == u {
			return p
		}
	}
	return Percent(exact)
}

// ParseDuration reads a duration as time.ParseDuration does ("100ms", "1m30s"),
// but refuses every number without a unit, even 0, and what is negative or finer
// than 1 ns. The error is a *FieldError without a Field.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	bare := s == "" || s[len(s)-1] >= '0' && s[len(s)-1] <= '9'
	signed := s != "" && (s[0] == '+' || s[0] == '-')
	cut := d == 0 && strings.ContainsAny(s, "123456789")
	if err != nil && !bare && !signed && tooLong(s) {
		return 0, &FieldError{Value: s, Want: wantLess}
	}
	if err != nil || bare || signed || cut {
		return 0, &FieldError{Value: s, Want: wantDuration}
	}
	return d, nil
}

// tooLong reports whether s, which time.ParseDuration refuses, has its form.
func tooLong(s string) bool {
	_, err := time.ParseDuration(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '0'
		}
		return r
	}, s))
	return err == nil
}

// FormatDuration is the short ASCII text of d that ParseDuration reads back:
// "100ms", "1.5s", "20us", "10m", "1h30m".
func FormatDuration(d time.Duration) string {
	s := strings.Replace(d.String(), "µs", "us", 1)
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// ParseDistribution reads the name of a shape. The error is a *FieldError
// without a Field.
func ParseDistribution(s string) (Distribution, error) {
	d := Distribution(s)
	if s == "" || !d.valid() {
		return "", &FieldError{Value: s, Want: wantShape}
	}
	return d, nil
}

func (d Distribution) valid() bool {
	switch d {
	case "", Uniform, Normal, Pareto, ParetoNormal, Custom:
		return true
	}
	return false
}

// decimal reads digits with at most one decimal point: no sign, exponent, comma,
// hexadecimal form, NaN or infinity.
func decimal(s string) (float64, bool) {
	whole, fraction, point := strings.Cut(s, ".")
	if !digits(whole) || point && !digits(fraction) {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}

func digits(s string) bool {
	for _, c := range s {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}
