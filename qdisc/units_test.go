package qdisc

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParsePercent(t *testing.T) {
	for in, want := range map[string]struct {
		fraction uint32
		text     string
	}{
		"0%":     {0, "0%"},
		"0.01%":  {429497, "0.01%"},
		"0.1%":   {4294967, "0.1%"},
		"0.5%":   {21474836, "0.5%"},
		"1%":     {42949673, "1%"},
		"5%":     {214748365, "5%"},
		"10%":    {429496730, "10%"},
		"20%":    {858993459, "20%"},
		"25%":    {1073741824, "25%"},
		"30%":    {1288490188, "30%"}, // x.5: half to even, as tc
		"99.99%": {4294537798, "99.99%"},
		"100%":   {math.MaxUint32, "100%"},
		"020.0%": {858993459, "20%"},
	} {
		p, err := ParsePercent(in)
		if err != nil {
			t.Errorf("ParsePercent(%q): %v", in, err)
			continue
		}
		if got := p.Fraction(); got != want.fraction {
			t.Errorf("%q: fraction %d, want %d", in, got, want.fraction)
		}
		if got := p.String(); got != want.text {
			t.Errorf("%q: String %q, want %q", in, got, want.text)
		}
		if back := PercentOf(want.fraction); back != p || back.String() != want.text {
			t.Errorf("%q: read back as %s, want %s", in, back, want.text)
		}
	}
}

func TestParsePercentRefuses(t *testing.T) {
	for _, in := range []string{
		"", "%", "20", "0.1", "1", "0,1%", "-1%", "+1%", "150%", "100.0001%", "NaN%", "Inf%", "-Inf%", "infinity%",
		"1e1%", "0x10%", "1_0%", ".5%", "5.%", "20 %", " 20%", "20%%", "1.2.3%", "٢٠%", "0.000000001%",
	} {
		p, err := ParsePercent(in)
		refused(t, in, p, err, "0% to 100%")
	}
}

// refused checks a parser's error: a FieldError that says what is allowed.
func refused(t *testing.T, in string, got any, err error, want string) {
	t.Helper()
	var fe *FieldError
	switch {
	case err == nil:
		t.Errorf("%q was read as %v", in, got)
	case !errors.As(err, &fe) || !errors.Is(err, ErrInvalid):
		t.Errorf("%q: %T is no FieldError", in, err)
	case fe.Value != in || fe.Field != "" || !strings.Contains(fe.Want, want):
		t.Errorf("%q: %+v does not say %q", in, *fe, want)
	}
}

func TestPercentClamps(t *testing.T) {
	for p, want := range map[Percent]uint32{-1: 0, 101: math.MaxUint32, Percent(math.Inf(1)): math.MaxUint32, Percent(math.Inf(-1)): 0} {
		if got := p.Fraction(); got != want {
			t.Errorf("%v: fraction %d, want %d", float64(p), got, want)
		}
	}
	if got := Percent(math.NaN()).Fraction(); got != 0 {
		t.Errorf("NaN: fraction %d, want 0", got)
	}
}

func FuzzPercentOf(f *testing.F) {
	for _, u := range []uint32{0, 1, 2, 21, 22, 429497, 214748365, 1 << 31, math.MaxUint32 - 1, math.MaxUint32} {
		f.Add(u)
	}
	f.Fuzz(func(t *testing.T, u uint32) {
		p := PercentOf(u)
		if got := p.Fraction(); got != u {
			t.Errorf("PercentOf(%d) = %s, which is encoded as %d", u, p, got)
		}
		if back, err := ParsePercent(p.String()); err != nil || back != p {
			t.Errorf("%s reads back as %s, %v", p, back, err)
		}
	})
}

func FuzzParsePercent(f *testing.F) {
	for _, s := range []string{"20%", "0.1%", "20", "-1%", "0,1%", "NaN%", "1e400%"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := ParsePercent(s)
		if err != nil {
			return
		}
		if !(p >= 0 && p <= 100) {
			t.Errorf("%q is read as %s", s, p)
		}
		if back, err := ParsePercent(p.String()); err != nil || back != p {
			t.Errorf("%q: %s reads back as %s, %v", s, p, back, err)
		}
	})
}

func TestParseDuration(t *testing.T) {
	for in, want := range map[string]struct {
		d    time.Duration
		text string
	}{
		"0s":     {0, "0s"},
		"1ns":    {1, "1ns"},
		"20us":   {20 * time.Microsecond, "20us"},
		"20µs":   {20 * time.Microsecond, "20us"},
		"100ms":  {100 * time.Millisecond, "100ms"},
		"1.5s":   {1500 * time.Millisecond, "1.5s"},
		"60s":    {time.Minute, "1m"},
		"10m":    {10 * time.Minute, "10m"},
		"1h":     {time.Hour, "1h"},
		"1h10m":  {70 * time.Minute, "1h10m"},
		"1h0m5s": {time.Hour + 5*time.Second, "1h0m5s"},
	} {
		d, err := ParseDuration(in)
		if err != nil || d != want.d {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", in, d, err, want.d)
		}
		if got := FormatDuration(d); got != want.text {
			t.Errorf("FormatDuration(%v) = %q, want %q", d, got, want.text)
		}
		if back, err := ParseDuration(want.text); err != nil || back != d {
			t.Errorf("%q reads back as %v, %v", want.text, back, err)
		}
	}
	for _, in := range []string{"", "0", "5", "0.5", "100", "-5ms", "+5ms", "-0s", "1,5s", "NaNs", "Infs", "5 ms", "5sec", "ms", "0.1ns", "1d", "5MS"} {
		d, err := ParseDuration(in)
		refused(t, in, d, err, "100ms")
	}
	for _, in := range []string{"300000000h", "9999999999999h", "2562047h47m99999999s", "999999999999999999999s"} {
		d, err := ParseDuration(in)
		refused(t, in, d, err, "at most 2562047h")
	}
	if d, err := ParseDuration("2562047h"); err != nil || d != 2562047*time.Hour {
		t.Errorf("the longest: %v, %v", d, err)
	}
}

func TestParseDistribution(t *testing.T) {
	for _, want := range []Distribution{Uniform, Normal, Pareto, ParetoNormal} {
		if got, err := ParseDistribution(string(want)); err != nil || got != want {
			t.Errorf("ParseDistribution(%q) = %q, %v", want, got, err)
		}
	}
	for _, in := range []string{"", "gauss", "Normal", "normal "} {
		d, err := ParseDistribution(in)
		refused(t, in, d, err, "paretonormal")
	}
}

func TestInField(t *testing.T) {
	_, err := ParsePercent("20")
	named := InField("loss", err)
	if got, want := named.Error(), `loss "20": want a percentage from 0% to 100%, such as 20% or 0.1%`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := InField("delay", named); !errors.Is(got, named) {
		t.Errorf("a field that was set became %v", got)
	}
	if InField("loss", nil) != nil {
		t.Error("nil became an error")
	}
	other := errors.New("other")
	if got := InField("loss", other); !errors.Is(got, other) {
		t.Error("another error was changed")
	}
	if got, want := err.Error(), `"20": want a percentage from 0% to 100%, such as 20% or 0.1%`; got != want {
		t.Errorf("without a field: got %q, want %q", got, want)
	}
}

func TestRenamed(t *testing.T) {
	flag := func(field string) string { return "--" + field }
	other := errors.New("other")
	one := &FieldError{Field: "loss", Value: "x", Want: "a percentage"}
	err := Renamed(errors.Join(one, other, errors.Join(&FieldError{Field: "delay"})), flag)
	if want := "--loss \"x\": want a percentage\nother\n--delay: want "; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if !errors.Is(err, ErrInvalid) || !errors.Is(err, other) || one.Field != "loss" {
		t.Errorf("%v: what it was is lost, or was changed: %v", err, one)
	}
	if Renamed(nil, flag) != nil {
		t.Error("nil became an error")
	}
}
