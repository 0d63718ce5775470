package qdisc

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// tc's numbers are doubles that are cut to whole ones (lib/utils.c and
// lib/utils_math.c of iproute2), and so are these, to the bit.

const (
	minInt32  = math.MinInt32
	maxInt32  = math.MaxInt32
	maxUint32 = math.MaxUint32

	microsecond = float64(time.Microsecond)
	nanosecond  = float64(time.Nanosecond)
)

const (
	wantTCTime  = "a time from 0s to 1h, such as 100ms, with s, ms, us, ns or the like"
	wantTCRate  = "a rate from 8bit to 100tbit, such as 10mbit (bits per second) or 1mbps (bytes per second)"
	wantTCSize  = "a whole number from 0 to 4294967295, perhaps with k, m or g (powers of 1024)"
	wantTCShape = "uniform, normal, pareto or paretonormal; a table of one's own is read from its file, apart from these arguments"
)

// tcTimeUnits are in nanoseconds, tcRateUnits in bits per second, tcSizeUnits in bytes.
var (
	tcTimeUnits = map[string]float64{
		"s": 1e9, "sec": 1e9, "secs": 1e9, "ms": 1e6, "msec": 1e6, "msecs": 1e6,
		"us": 1e3, "usec": 1e3, "usecs": 1e3, "ns": 1, "nsec": 1, "nsecs": 1,
	}
	tcRateUnits = map[string]float64{
		"": 1, "bit": 1, "kibit": 1 << 10, "kbit": 1e3, "mibit": 1 << 20, "mbit": 1e6,
		"gibit": 1 << 30, "gbit": 1e9, "tibit": 1 << 40, "tbit": 1e12,
		"bps": 8, "kibps": 8 << 10, "kbps": 8e3, "mibps": 8 << 20, "mbps": 8e6,
		"gibps": 8 << 30, "gbps": 8e9, "tibps": 8 << 40, "tbps": 8e12,
	}
	tcSizeUnits = map[string]float64{
		"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30,
		"kbit": 1 << 10 / 8, "mbit": 1 << 20 / 8, "gbit": 1 << 30 / 8,
	}
)

// tcNumber reads a number with one of the units, in upper or lower case.
func tcNumber(s string, units map[string]float64) (float64, bool) {
	i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(s)
	}
	v, ok := decimal(s[:i])
	factor, known := units[strings.ToLower(s[i:])]
	return v * factor, ok && known
}

// tcDuration reads a time; a number without a unit counts bare nanoseconds.
func tcDuration(field, s string, bare float64) (time.Duration, error) {
	v, ok := tcNumber(s, tcTimeUnits)
	if number, isBare := decimal(s); isBare {
		v, ok = number*bare, true
	}
	if !ok || v > float64(MaxDelay) {
		return 0, &FieldError{Field: field, Value: s, Want: wantTCTime}
	}
	return time.Duration(v), nil
}

func tcPercent(field, s string) (Percent, error) {
	v, ok := decimal(strings.TrimSuffix(s, "%"))
	if p := Percent(v); ok && p.valid() {
		return p, nil
	}
	return 0, &FieldError{Field: field, Value: s, Want: wantPercent}
}

// tcRate reads a rate; 0 is no limit, as to tc, and what tc would cut to it is
// refused.
func tcRate(s string) (Rate, error) {
	bits, ok := tcNumber(s, tcRateUnits)
	bytes := bits / 8
	if !ok || bytes > float64(MaxRate) || bytes < 1 && bytes != 0 {
		return 0, &FieldError{Field: "rate", Value: s, Want: wantTCRate}
	}
	return Rate(bytes), nil
}

func tcSize(field, s string) (uint64, error) {
	v, ok := tcNumber(s, tcSizeUnits)
	if !ok || v > maxUint32 {
		return 0, &FieldError{Field: field, Value: s, Want: wantTCSize}
	}
	return uint64(v), nil
}

// tcInteger reads a whole number as C writes it: 17, 0x11 or 021.
func tcInteger(field, s string, least, most int64) (int64, error) {
	v, err := strconv.ParseInt(s, 0, 64)
	notC := strings.Contains(s, "_") || strings.ContainsAny(s, "oObB") && !strings.ContainsAny(s, "xX")
	if err != nil || notC || v < least || v > most {
		return 0, &FieldError{Field: field, Value: s, Want: "a whole number from " + strconv.FormatInt(least, 10) + " to " + strconv.FormatInt(most, 10)}
	}
	return v, nil
}

func tcSeed(s string) (uint64, error) {
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil || v == 0 {
		return 0, &FieldError{Field: "seed", Value: s, Want: "a whole number from 1 to 18446744073709551615"}
	}
	return v, nil
}

func tcDistribution(field, s string) (Distribution, error) {
	d := Distribution(s)
	if s == "" || !d.valid() || d == Custom {
		return "", &FieldError{Field: field, Value: s, Want: wantTCShape}
	}
	return d, nil
}
