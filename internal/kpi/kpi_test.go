package kpi

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/qdisc"
)

func measured(values map[string]Value) Measured {
	return func(r Ref) (Value, error) {
		key := r.Phase + ":" + r.String()
		if v, ok := values[key]; ok {
			return v, nil
		}
		return Value{}, errors.New("the phase did not pass")
	}
}

func TestJudge(t *testing.T) {
	m := measured(map[string]Value{
		"fault:p99_ms":                       {Number: 480},
		"fault:p99_ms(slow one)":             {Number: 900},
		"control:p50_ms":                     {Number: 2},
		"fault:p50_ms":                       {Number: 221},
		"fault:calls":                        {Number: 50},
		"fault:attempts":                     {Number: 200},
		"fault:success":                      Rate(188, 200),
		"fault:measured":                     Rate(1930, 10000),
		"fault:asked":                        {Number: .2},
		"fault:errors[timeout]":              {Number: 5},
		"fault:attempts_peak[100ms](none)":   {Number: 50},
		"fault:attempts_peak[100ms](jitter)": {Number: 20},
		"fault:ok":                           {},
		"recovery:success":                   Rate(99, 100),
		"fault:turns":                        {Number: math.NaN()},
	})
	for text, want := range map[string]Verdict{
		"p99_ms < 500":                                   Passed,
		"p99_ms < 400ms":                                 Failed,
		"p99_ms <= 0.5s in fault":                        Passed,
		`p99_ms > 500 of "slow one"`:                     Passed,
		`p99_ms("slow one") > p99_ms`:                    Passed,
		"success >= 99% in recovery within 5s":           Passed,
		"success >= 99.5% in recovery":                   Failed,
		"attempts == 4*calls":                            Passed,
		"attempts/calls <= 1.2":                          Failed,
		"between(p50_ms - p50_ms(x, control), 150, 450)": Inconclusive,
		"ok == 0 && errors[timeout] == 5":                Passed,
		"ok == 1 || errors[timeout] == 5":                Passed,
		"turns < 3":                                      Inconclusive,
		"turns < 3 && ok == 1":                           Failed, // whatever the other side is
		"turns < 3 || ok == 0":                           Passed,
		"calls/ok > 1":                                   Inconclusive,
		"agrees(success, 1 - pow(30%, 2))":               Passed,
		"agrees(success, 99%)":                           Failed,
		"asked == measured":                              Passed, // 1.75 standard deviations
		"measured == 15%":                                Failed,
		"measured != 15%":                                Passed,
		"attempts_peak[100ms](jitter) < 60% * attempts_peak[100ms](none)": Passed,
		"-abs(-3) == 0-3":         Passed,
		"p99_ms < 500 in control": Inconclusive,
		"(p99_ms) < (500)":        Passed,
		"max(calls, attempts, 1) == 200 && min(calls, 7) == 7": Passed,
	} {
		k, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if j := k.Judge(m); j.Verdict != want || (j.Verdict == Inconclusive) != (j.Reason != "") {
			t.Errorf("%s: %s (%s), want %s", text, j.Verdict, j.Reason, want)
		}
	}
}

func TestClauses(t *testing.T) {
	for text, want := range map[string]KPI{
		"ok > 0":                                     {Phase: Fault},
		"ok > 0 in recovery":                         {Phase: Recovery},
		"ok > 0 in every repeat":                     {Phase: Fault, Every: true},
		"ok > 0 in every repeat of control":          {Phase: Control, Every: true},
		"ok > 0 in every repeat of storm":            {Phase: Fault, Every: true, Case: "storm"},
		"ok > 0 in every repeat of control of storm": {Phase: Control, Every: true, Case: "storm"},
		`ok > 0 of "in fault" within 1m in control`:  {Phase: Control, Case: "in fault", Within: time.Minute},
		"ok > 0 after 2s within 1m":                  {Phase: Fault, After: 2 * time.Second, Within: time.Minute},
	} {
		k, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		refs := []Ref{{Metric: "ok", Case: want.Case, Phase: want.Phase, After: want.After, Within: want.Within}}
		got := KPI{Phase: k.Phase, Case: k.Case, After: k.After, Within: k.Within, Every: k.Every}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(KPI{})); diff != "" || !cmp.Equal(refs, k.Refs()) {
			t.Errorf("%s: %s, refs %v", text, diff, k.Refs())
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                             "want a condition",
		"p99_ms":                       "column 1: is a number",
		"p99 < 5":                      "column 1: there is no metric \"p99\"",
		"p99_mz < 5":                   "did you mean p99_ms?",
		"ok < 5 in falt":               "column 11: want a phase",
		"ok < 5 in":                    "column 8: nothing stands behind 'in'",
		"ok < 5 in fault in control":   "column 17: a second 'in'",
		"ok < 5 in every day":          "column 11: want 'every repeat'",
		"ok < 5 within -3s":            "column 15: want a time above 0",
		"ok < 5 in fault whatever now": "column 17: want 'in PHASE'",
		"ok < 5 within 1s after 1s":    "column 24: want a time within later",
		"ok <":                         "column 5:",
		"ok < 5 && 3":                  "column 11: is a number",
		"errors > 3":                   "column 1: want errors[class]",
		"ok[timeout] > 3":              "ok has no kinds",
		"attempts_peak[soon] > 3":      "want attempts_peak[100ms]",
		"ok(a, fault, c) > 3":          "want (CASE)",
		"ok(a, later) > 3":             "column 7: want a phase",
		"pow(3) > 3":                   "want pow(a, n)",
		"ok & 3 > 1":                   "column 4: & is not understood",
		"ok < 5 < 6":                   "column 1: is a condition, want a number",
		`ok < "a"`:                     "column 6: want a number",
		"ok < 5\nok < 6":               "one line",
		"f(x)(y) > 1":                  "want a metric",
		"func(){} > 1":                 "is not understood",
		"between(1, 2, 3) + 1 > 0":     "is a condition",
		"!(ok > 1)":                    "is not understood",
		strings.Repeat("x", MaxText+1): "at most 1000 bytes",
	} {
		_, err := Parse(text)
		var field *qdisc.FieldError
		if !errors.As(err, &field) || field.Field != "kpi" || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
}

func TestAgrees(t *testing.T) {
	// The binomial distribution's tails, summed here.
	choose := func(n, k int) float64 {
		v, _ := math.Lgamma(float64(n + 1))
		a, _ := math.Lgamma(float64(k + 1))
		b, _ := math.Lgamma(float64(n - k + 1))
		return v - a - b
	}
	for _, n := range []int{1, 10, 50, 200} {
		for _, p := range []float64{.01, .3, .5, .91} {
			for k := 0; k <= n; k++ {
				var atMost, atLeast float64
				for i := 0; i <= n; i++ {
					mass := math.Exp(choose(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log(1-p))
					if i <= k {
						atMost += mass
					}
					if i >= k {
						atLeast += mass
					}
				}
				if want := min(atMost, atLeast) >= .0005; Agrees(k, n, p, Level) != want {
					t.Errorf("%d of %d, p %v: want %v", k, n, p, want)
				}
			}
		}
	}
	if Agrees(0, 0, .5, Level) || !Agrees(5, 5, 1, Level) || Agrees(4, 5, 1, Level) || !Agrees(0, 5, 0, Level) {
		t.Error("certain")
	}
}

func TestInterval(t *testing.T) {
	for _, v := range []Value{Rate(0, 20), Rate(20, 20), Rate(7, 20), Rate(1930, 10000)} {
		low, high := Interval(v)
		if low > v.Number || high < v.Number {
			t.Errorf("%v: %v..%v", v, low, high)
		}
		k := int(math.Round(v.Number * float64(v.Of)))
		// What is inside agrees, what is outside does not.
		for p, want := range map[float64]bool{low + 1e-9: true, high - 1e-9: true, low - 1e-6: false, high + 1e-6: false} {
			if p > 0 && p < 1 && Agrees(k, v.Of, p, Level) != want {
				t.Errorf("%v: %v..%v, at %v", v, low, high, p)
			}
		}
	}
	if low, high := Interval(Value{Number: 3}); low != 0 || high != 1 {
		t.Error("of nothing")
	}
}

func FuzzParse(f *testing.F) {
	f.Add("p99_ms < 500 in fault")
	f.Add(`errors[timeout](none, control) == 20% * max(1, 2ms) of "a b" within 5s`)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Parse(text)
		if err != nil {
			return
		}
		k.Judge(func(Ref) (Value, error) { return Value{Number: 1}, nil })
	})
}

// TestUniform has the bound of the Dvoretzky-Kiefer-Wolfowitz inequality: for 100 values at the
// level 99.9 % it is sqrt(ln(2000) / 200) = 0.195.
func TestUniform(t *testing.T) {
	shifted := func(by float64) (all []float64) {
		for i := range 100 {
			all = append(all, min(1, (float64(i)+.5)/100+by))
		}
		return all
	}
	for by, want := range map[float64]bool{0: true, .15: true, .18: true, .2: false, -.18: true, -.2: false} {
		if got := Uniform(shifted(by), 0, 1, Level); got != want {
			t.Errorf("shifted by %v: %v", by, got)
		}
	}
	if Uniform(nil, 0, 1, Level) || Uniform([]float64{.5}, 1, 1, Level) {
		t.Error("nothing is uniform")
	}
	for _, text := range []string{"uniform(p50_ms, 0, 1)", "uniform(1, 0, 1)", "uniform(retry_delay[1] + 1, 0, 1)", "retry_delay[0] > 1", "retry_delay[x] > 1", "retry_delay > 1"} {
		if _, err := Parse(text); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// TestLowerBound has numbers of which is known that they are 3000 or more.
func TestLowerBound(t *testing.T) {
	for text, want := range map[string]Verdict{
		"recovery_ms <= 1500":         Failed,
		"recovery_ms > 1500":          Passed,
		"1500 > recovery_ms":          Failed,
		"recovery_ms <= 5s":           Inconclusive,
		"recovery_ms >= 3s":           Passed,
		"recovery_ms > 3s":            Inconclusive,
		"recovery_ms == 1500":         Failed,
		"recovery_ms != 1500":         Passed,
		"recovery_ms == 4s":           Inconclusive,
		"recovery_ms - 1 > 0":         Inconclusive,
		"max(recovery_ms, 1) > 0":     Inconclusive,
		"between(recovery_ms, 1, 2)":  Inconclusive,
		"recovery_ms <= 5s || ok > 1": Passed,
	} {
		k, err := Parse(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if j := k.Judge(func(r Ref) (Value, error) { return Value{Number: 3000, AtLeast: r.Metric == "recovery_ms"}, nil }); j.Verdict != want {
			t.Errorf("%s: %+v, want %s", text, j, want)
		}
	}
}
