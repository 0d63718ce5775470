package qdisc

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseSamples(t *testing.T) {
	s, err := ParseSamples(strings.NewReader("# made by hand\n -8192 0\t8192\n\n#1\n32767 -32768"))
	if diff := cmp.Diff([]int16{-8192, 0, 8192, 32767, -32768}, s.Table()); err != nil || diff != "" || s.Len() != 5 {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if SamplesOf(s.Table()) != s {
		t.Error("samples of its table are others")
	}
	most := strings.Repeat("1 ", MaxSamples)
	if s, err := ParseSamples(strings.NewReader(most)); err != nil || s.Len() != MaxSamples {
		t.Errorf("%v, %v", s, err)
	}
	for in, value := range map[string]string{
		"":            "no number",
		"# nothing\n": "no number",
		"1 2 x":       "x",
		"1.5":         "1.5",
		"32768":       "32768",
		"-32769":      "-32769",
		most + "1":    "more than 16384 numbers",
	} {
		var fe *FieldError
		if s, err := ParseSamples(strings.NewReader(in)); !errors.As(err, &fe) || fe.Value != value || !strings.Contains(fe.Want, "-32768 to 32767") {
			t.Errorf("%.20q: %v, %v, want an error with %q", in, s, err, value)
		}
	}
	broken := errors.New("disk on fire")
	if _, err := ParseSamples(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("a reader's error became %v", err)
	}
}

// Custom tables reach the kernel's bytes and come back, up to what a message holds.
func TestCustomSamples(t *testing.T) {
	table := make([]int16, 333)
	for k := range table {
		table[k] = int16(k * 50)
	}
	n := Netem{Delay: 100 * ms, Jitter: 10 * ms, Distribution: Custom, Samples: SamplesOf(table)}
	b, err := n.MarshalOptions()
	if err != nil {
		t.Fatal(err)
	}
	if back, err := UnmarshalOptions(b); err != nil || back != n.Normalize() {
		t.Errorf("reads back as %v, %v", back, err)
	}
	full := SamplesOf(make([]int16, MaxSamples))
	n.Samples, n.Slot = full, Slot{Distribution: Custom, Delay: ms, Jitter: ms, Samples: full[:2*(maxTables-MaxSamples)]}
	b, err = n.MarshalOptions()
	if err != nil || len(b)+4 > math.MaxUint16 {
		t.Errorf("largest tables: %d bytes, %v", len(b), err)
	}
	n.Slot.Samples += "12"
	if err := n.Validate(); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), "slot.samples") {
		t.Errorf("too large tables: %v", err)
	}
}

// scaledByKernel is the table's part of tabledist of net/sched/sch_netem.c.
func scaledByKernel(sigma int32, t int64) int64 {
	x := int64(sigma%8192) * t
	if x >= 0 {
		x += 8192 / 2
	} else {
		x -= 8192 / 2
	}
	return x/8192 + int64(sigma/8192)*t
}

// The quantiles are those of the kernel's draws: at every q, by the bound of
// Dvoretzky, Kiefer and Wolfowitz with a chance of 10^-9 to fail.
func TestDelays(t *testing.T) {
	const draws = 200_000 // not the kernel's 2^32
	bound := math.Sqrt(math.Log(2/1e-9) / (2 * draws))
	custom := SamplesOf([]int16{-32768, 0, 0, 4096, 8192, 100, -7, 32767})
	for _, n := range []Netem{
		{Delay: 100 * ms, Jitter: 20 * ms},
		{Delay: 100 * ms, Jitter: 100 * ms, Distribution: Uniform},
		{Delay: 2 * time.Second, Jitter: 1300 * ms}, // low ones twice as often
		{Delay: 3 * time.Second, Jitter: MaxJitter},
		{Delay: 100 * ms, Jitter: 3},
		{Delay: 100 * ms, Jitter: 30 * ms, Distribution: Normal},
		{Delay: 100 * ms, Jitter: 100 * ms, Distribution: Normal}, // cut at 0
		{Delay: 100 * ms, Jitter: 20 * ms, Distribution: Pareto},
		{Delay: 100 * ms, Jitter: 7777 * time.Microsecond, Distribution: ParetoNormal},
		{Delay: 100 * ms, Jitter: 50 * ms, Distribution: Custom, Samples: custom},
	} {
		random := rand.New(rand.NewPCG(1, 7))
		drawn := make([]time.Duration, draws)
		table := n.JitterTable()
		for k := range drawn {
			x := int64(random.Uint32())
			if table == nil {
				drawn[k] = n.Delay - n.Jitter + time.Duration(x%(2*int64(n.Jitter)))
			} else {
				drawn[k] = n.Delay + time.Duration(scaledByKernel(int32(n.Jitter), int64(table[x%int64(len(table))])))
			}
			drawn[k] = max(0, drawn[k])
		}
		slices.Sort(drawn)
		d := n.Delays()
		worst := 0.0
		for k, v := range drawn {
			if k+1 < len(drawn) && drawn[k+1] == v {
				continue // the last of equals is where the distribution function stands
			}
			worst = max(worst, math.Abs(float64(k+1)/draws-d.CDF(v)))
		}
		if worst > bound {
			t.Errorf("%v: draws are %.4f from the distribution, want at most %.4f", n, worst, bound)
		}
		for _, q := range []float64{0, .001, .5, .9, .999, 1} {
			v := n.DelayQuantile(q)
			if d.CDF(v) < q-1e-6 || v > 0 && d.CDF(v-1) > q+1e-6 || v < 0 {
				t.Errorf("%v: quantile %v is %v, below which are %v and up to which %v", n, q, v, d.CDF(v-1), d.CDF(v))
			}
		}
	}
	if q := (Netem{Delay: 5 * ms}).DelayQuantile(.3); q != 5*ms {
		t.Errorf("without jitter: %v", q)
	}
	if d := (Netem{Delay: 5 * ms}).Delays(); d.CDF(5*ms-1) != 0 || d.CDF(5*ms) != 1 || d.CDF(-1) != 0 {
		t.Error("without jitter, the distribution is no step")
	}
}

func TestSlotTable(t *testing.T) {
	if table := (Slot{MinDelay: ms}).Table(); table != nil {
		t.Errorf("a slot without a distribution has %d samples", len(table))
	}
	if table := (Slot{Distribution: Custom, Samples: "\x05\x00"}).Table(); len(table) != 1 {
		t.Errorf("custom: %v", table)
	}
	if table := (Slot{Distribution: Normal}).Table(); len(table) != tableSize {
		t.Errorf("normal has %d samples", len(table))
	}
}
