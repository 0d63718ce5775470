package verify

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"netemd/qdisc"
)

func near(a, b, within float64) bool { return math.Abs(a-b) <= within }

// 5 of 10 is what R's binom.test(5, 10) gives; for none or all there is a closed form.
func TestClopperPearson(t *testing.T) {
	for _, tt := range []struct{ k, n, alpha, low, high float64 }{
		{0, 10, .05, 0, 1 - math.Pow(.025, .1)},
		{10, 10, .05, math.Pow(.025, .1), 1},
		{5, 10, .05, .1871, .8129},
		{0, 1000, .001, 0, 1 - math.Pow(.0005, .001)},
		{0, 0, .05, 0, 1},
	} {
		low, high := clopperPearson(tt.k, tt.n, tt.alpha)
		if !near(low, tt.low, 5e-5) || !near(high, tt.high, 5e-5) {
			t.Errorf("%v of %v at %v: %.5f to %.5f, want %.5f to %.5f", tt.k, tt.n, tt.alpha, low, high, tt.low, tt.high)
		}
	}
	// By definition: at each bound, what was seen or more extreme has half of alpha.
	for _, k := range []int{1, 20, 199, 1000, 1990} {
		const n, alpha = 2000, .001
		low, high := clopperPearson(float64(k), n, alpha)
		if got := 1 - binomialAtMost(k-1, n, low); !near(got, alpha/2, 1e-9) {
			t.Errorf("%d: %v above at the lower bound", k, got)
		}
		if got := binomialAtMost(k, n, high); !near(got, alpha/2, 1e-9) {
			t.Errorf("%d: %v below at the upper bound", k, got)
		}
	}
}

func TestQuantileRanks(t *testing.T) {
	// Of 10 draws, the median lies between the 2nd and the 9th at 97.9 %
	// (1 - 22/1024), and the next narrower pair is at 89.1 %.
	if low, high := quantileRanks(10, .5, .05); low != 2 || high != 9 {
		t.Errorf("ranks %d and %d", low, high)
	}
	if low, high := quantileRanks(100, .99, .001); low < 1 || high != 101 {
		t.Errorf("ranks %d and %d of 100: there is no upper bound", low, high)
	}
	r := rand.New(rand.NewPCG(1, 2))
	misses := 0
	const tries, n, q, alpha = 4000, 500, .9, .05
	low, high := quantileRanks(n, q, alpha)
	for range tries {
		draws := make([]float64, n)
		for i := range draws {
			draws[i] = r.Float64()
		}
		slices.Sort(draws)
		if draws[low-1] > q || draws[high-1] < q {
			misses++
		}
	}
	// Five standard deviations above the promise.
	if most := tries*alpha + 5*math.Sqrt(tries*alpha); float64(misses) > most {
		t.Errorf("%d misses of %d", misses, tries)
	}
}

// Gilbert-Elliott with p 1 % and r 10 %: a share of 1/11, in bursts of 10, and 100,000
// packets bound it as 5,820 independent ones do, by 1.24 points at 99.9 %.
func TestLossOfBursts(t *testing.T) {
	m := lossOf(qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}})
	effective := 100_000 / m.inflation
	half := normalBound(.001) * math.Sqrt(m.share*(1-m.share)/effective)
	if !near(m.share, 1./11, 1e-9) || !near(m.burst, 10, 1e-9) || !m.geometric || !near(effective, 5820, 1) || !near(100*half, 1.24, .005) {
		t.Errorf("%+v: %.0f effective, +-%.3f points", m, effective, 100*half)
	}
	if m := lossOf(qdisc.Netem{Loss: 20}); !near(m.burst, 1.25, 1e-9) || m.inflation != 1 {
		t.Errorf("20 %%: %+v", m)
	}
}

func TestUniformIsNetems(t *testing.T) {
	for _, jitter := range []int64{1e6, 20e6, 500e6, 2e9} {
		var draws []float64
		r := rand.New(rand.NewPCG(3, 4))
		for range 100_000 {
			draws = append(draws, float64(uint64(r.Uint32())%uint64(2*jitter)))
		}
		slices.Sort(draws)
		for _, q := range []float64{.1, .25, .5, .75, .9} {
			if got, want := draws[int(q*100_000)], uniform(q, time.Duration(jitter)); !near(got, want, float64(2*jitter)*.01) {
				t.Errorf("jitter %d ns: quantile %v is %v, want %v", jitter, q, got, want)
			}
		}
	}
}
