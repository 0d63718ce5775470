package ebpf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"netemd/internal/engine/netem"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// familyLevel is the chance that engines which agree are said to differ, over all the
// comparisons of a run together (Bonferroni).
const familyLevel = 1e-3

// outcome is what became of numbered packets.
type outcome struct {
	sent int
	// arrivals counts each number's.
	arrivals []int
	// delays are those of the first arrivals in the order of sending, in ms.
	delays []float64
	// took is from the first to the last arrival.
	took time.Duration
}

func outcomeOf(sent int, got []arrival) outcome {
	o := outcome{sent: sent, arrivals: make([]int, sent)}
	delays := make([]float64, sent)
	for _, a := range got {
		if o.arrivals[a.number]++; o.arrivals[a.number] == 1 {
			delays[a.number] = float64(a.delay()) / float64(ms)
		}
	}
	for i, n := range o.arrivals {
		if n > 0 {
			o.delays = append(o.delays, delays[i])
		}
	}
	if len(got) > 0 {
		o.took = time.Duration(got[len(got)-1].at - got[0].at)
	}
	return o
}

// share counts the packets of which f holds.
func (o outcome) share(f func(arrivals int) bool) (n int) {
	for _, a := range o.arrivals {
		if f(a) {
			n++
		}
	}
	return n
}

func (o outcome) lost() int { return o.share(func(n int) bool { return n == 0 }) }

// early counts the delays below d.
func (o outcome) early(d float64) (n int) {
	for _, x := range o.delays {
		if x < d {
			n++
		}
	}
	return n
}

// bursts counts the runs of lost packets by length: 1, 2, 3, 4 and more.
func (o outcome) bursts() []int {
	count, run := make([]int, 4), 0
	for i := range o.sent + 1 {
		if i < o.sent && o.arrivals[i] == 0 {
			run++
			continue
		}
		if run > 0 {
			count[min(run, len(count))-1]++
		}
		run = 0
	}
	return count
}

// blocks are the shares lost in blocks of packets, for draws that hang together.
func (o outcome) blocks() (shares []float64) {
	const size = 20
	for i := 0; i+size <= o.sent; i += size {
		n := 0
		for _, a := range o.arrivals[i : i+size] {
			if a == 0 {
				n++
			}
		}
		shares = append(shares, float64(n)/size)
	}
	return shares
}

// steps are how far neighbours' delays lie apart; every other one, so that none shares
// a packet with another.
func (o outcome) steps() (d []float64) {
	for i := 0; i+1 < len(o.delays); i += 2 {
		d = append(d, math.Abs(o.delays[i+1]-o.delays[i]))
	}
	return d
}

// proportions is the chance of two counts that differ that much or more, out of n and m
// draws with one probability (chi-squared, one degree of freedom).
func proportions(a, n, b, m int) float64 {
	p := float64(a+b) / float64(n+m)
	if p == 0 || p == 1 {
		return 1
	}
	z := (float64(a)/float64(n) - float64(b)/float64(m)) / math.Sqrt(p*(1-p)*(1/float64(n)+1/float64(m)))
	return math.Erfc(math.Abs(z) / math.Sqrt2)
}

// homogeneous is the same for counts in several categories. Those with fewer than 10
// of both together go with the one before.
func homogeneous(a, b []int) float64 {
	var x, y []float64
	for i := range a {
		if k := len(x); k > 0 && a[i]+b[i] < 10 {
			x[k-1] += float64(a[i])
			y[k-1] += float64(b[i])
			continue
		}
		x, y = append(x, float64(a[i])), append(y, float64(b[i]))
	}
	var n, m, chi float64
	for i := range x {
		n += x[i]
		m += y[i]
	}
	if n == 0 || m == 0 {
		return 1
	}
	for i := range x {
		if t := x[i] + y[i]; t > 0 {
			d := x[i]*math.Sqrt(m/n) - y[i]*math.Sqrt(n/m)
			chi += d * d / t
		}
	}
	return chiSquared(chi, len(x)-1)
}

// chiSquared is the chance of x or more with df degrees of freedom, by the finite sums
// for whole and half degrees (Abramowitz and Stegun, 26.4.4 and 26.4.5).
func chiSquared(x float64, df int) float64 {
	switch {
	case df <= 0 || x <= 0:
		return 1
	case df%2 == 0:
		term, sum := 1., 1.
		for i := 1; i < df/2; i++ {
			term *= x / 2 / float64(i)
			sum += term
		}
		return math.Exp(-x/2) * sum
	}
	term, sum := math.Sqrt(x), 0.
	for i := 1; i <= (df-1)/2; i++ {
		sum += term
		term *= x / float64(2*i+1)
	}
	return math.Erfc(math.Sqrt(x/2)) + math.Sqrt(2/math.Pi)*math.Exp(-x/2)*sum
}

// kolmogorov is the chance of two samples of one distribution that lie that far apart
// or further (Kolmogorov and Smirnov, with Stephens' correction for small samples).
func kolmogorov(a, b []float64) float64 {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	if len(a) == 0 || len(b) == 0 {
		return 1
	}
	i, j, d := 0, 0, 0.
	for i < len(a) && j < len(b) {
		x := min(a[i], b[j])
		for i < len(a) && a[i] <= x {
			i++
		}
		for j < len(b) && b[j] <= x {
			j++
		}
		d = max(d, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	n := math.Sqrt(float64(len(a)) * float64(len(b)) / float64(len(a)+len(b)))
	l := (n + .12 + .11/n) * d
	sum := 0.
	for k := 1.; k <= 100; k++ {
		sum += 2 * math.Pow(-1, k-1) * math.Exp(-2*k*k*l*l)
	}
	if l < .3 {
		return 1
	}
	return min(1, max(0, sum))
}

// means compares two samples' means (Welch), with Wallace's turning of t into z.
func means(a, b []float64) float64 {
	moments := func(x []float64) (mean, variance float64) {
		for _, v := range x {
			mean += v / float64(len(x))
		}
		for _, v := range x {
			variance += (v - mean) * (v - mean) / float64(len(x)-1)
		}
		return mean, variance / float64(len(x))
	}
	m, v := moments(a)
	k, w := moments(b)
	if v+w == 0 {
		return 1
	}
	t, df := (m-k)/math.Sqrt(v+w), float64(len(a)+len(b)-2)
	z := math.Sqrt(df*math.Log1p(t*t/df)) * (1 - 3/(4*df))
	return math.Erfc(z / math.Sqrt2)
}

// comparison is one figure of two outcomes.
type comparison struct {
	name string
	p    func(a, b outcome) float64
}

var (
	byLoss   = comparison{"lost", func(a, b outcome) float64 { return proportions(a.lost(), a.sent, b.lost(), b.sent) }}
	byBurst  = comparison{"burst lengths", func(a, b outcome) float64 { return homogeneous(a.bursts(), b.bursts()) }}
	byBlocks = comparison{"lost in blocks", func(a, b outcome) float64 { return means(a.blocks(), b.blocks()) }}
	byDelay  = comparison{"delays", func(a, b outcome) float64 { return kolmogorov(few(a.delays), few(b.delays)) }}
	bySteps  = comparison{"steps of delay", func(a, b outcome) float64 { return kolmogorov(few(a.steps()), few(b.steps())) }}
	byTwice  = comparison{"duplicated", func(a, b outcome) float64 {
		twice := func(n int) bool { return n > 1 }
		return proportions(a.share(twice), a.sent, b.share(twice), b.sent)
	}}
)

func byEarly(d float64) comparison {
	return comparison{"ahead", func(a, b outcome) float64 {
		return proportions(a.early(d), len(a.delays), b.early(d), len(b.delays))
	}}
}

// few keeps a sample small enough that the guest's clock, which is coarse, is no
// difference between engines: 3000 tell a shift by some ms of a delay that is spread
// over 200 ms.
func few(x []float64) []float64 { return x[:min(len(x), 3000)] }

// differ are the options that the engines are compared in.
var differ = []struct {
	name string
	n    qdisc.Netem
	// wrong is what the ebpf engine gets instead, where the comparison must tell.
	wrong *qdisc.Netem
	long  int // packets in the long run
	by    []comparison
}{
	{"loss", qdisc.Netem{Loss: 20}, nil, 50_000, []comparison{byLoss, byBurst}},
	{"loss in a queue", qdisc.Netem{Loss: 20, Delay: 40 * ms}, nil, 0, []comparison{byLoss, byBurst}},
	{"loss with correlation", qdisc.Netem{Loss: 30, LossCorrelation: 40}, nil, 0, []comparison{byBlocks, byBurst}},
	{"4-state", qdisc.Netem{LossState: qdisc.LossState{P13: 5, P31: 20, P32: 15, P23: 50, P14: 3}}, nil, 0, []comparison{byBlocks, byBurst}},
	{"Gilbert-Elliott", qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: 5, R: 30, LossBad: 90, LossGood: 2}}, nil, 0, []comparison{byBlocks, byBurst}},
	{"duplicate", qdisc.Netem{Duplicate: 20}, nil, 0, []comparison{byTwice, byLoss}},
	{"duplicate and loss", qdisc.Netem{Duplicate: 30, Loss: 30}, nil, 0, []comparison{byTwice, byLoss}},
	{"corrupt", qdisc.Netem{Corrupt: 30}, nil, 0, []comparison{byLoss}},
	{"delay", qdisc.Netem{Delay: 60 * ms}, nil, 0, []comparison{byLoss}},
	{"uniform", qdisc.Netem{Delay: 150 * ms, Jitter: 100 * ms}, nil, 0, []comparison{byDelay, bySteps}},
	{"normal", qdisc.Netem{Delay: 200 * ms, Jitter: 60 * ms, Distribution: qdisc.Normal}, nil, 0, []comparison{byDelay}},
	{"pareto", qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.Pareto}, nil, 0, []comparison{byDelay}},
	{"paretonormal", qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.ParetoNormal}, nil, 0, []comparison{byDelay}},
	{"delay with correlation", qdisc.Netem{Delay: 150 * ms, Jitter: 100 * ms, DelayCorrelation: 50}, nil, 0, []comparison{bySteps}},
	{"reorder", qdisc.Netem{Delay: 100 * ms, Reorder: 25}, nil, 0, []comparison{byEarly(50)}},
	{"gap", qdisc.Netem{Delay: 100 * ms, Reorder: 50, Gap: 4}, nil, 0, []comparison{byEarly(50)}},
	{"rate", qdisc.Netem{Rate: 40_000}, nil, 0, []comparison{byLoss}},
	{"limit", qdisc.Netem{Rate: 40_000, Limit: 20}, nil, 0, nil},
	{"slot", qdisc.Netem{Slot: qdisc.Slot{MinDelay: 100 * ms, MaxDelay: 100 * ms}}, nil, 0, []comparison{byDelay}},

	{"wrong loss", qdisc.Netem{Loss: 20}, &qdisc.Netem{Loss: 60}, 0, []comparison{byLoss}},
	{"wrong jitter", qdisc.Netem{Delay: 150 * ms, Jitter: 100 * ms}, &qdisc.Netem{Delay: 150 * ms, Jitter: 40 * ms}, 0, []comparison{byDelay}},
	{"slightly wrong loss", qdisc.Netem{Loss: 20}, &qdisc.Netem{Loss: 22}, 50_000, []comparison{byLoss}},
}

// verdict is one comparison's result.
type verdict struct {
	name  string
	p     float64
	wrong bool
}

// netem and this engine do the same to the same packets, option by option.
func TestDifferential(t *testing.T) {
	testenv.Netem(t)
	kernel, ebpf := newLab(t), newLab(t)
	theirs, e := netem.New(netem.Config{}), newEngine(t, Config{})
	t.Cleanup(func() {
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
	})
	a, b := kernel.newFlow(t, client4, server4, 0, port), ebpf.newFlow(t, client4, server4, 0, port)
	p := onPort(ebpf.place)
	set(t, e, p, qdisc.Netem{Delay: ms})
	if err := theirs.Neutral(ctx, kernel.place); err != nil {
		t.Fatal(err)
	}
	long := os.Getenv("NETEMD_TEST_LONG") == "1"
	var found []verdict
	for _, d := range differ {
		sent := 500
		if long {
			sent = max(3000, d.long)
		} else if d.wrong != nil && d.long > 0 {
			continue // it takes as many packets as that to tell
		}
		n := d.n
		if d.wrong != nil {
			n = *d.wrong
		}
		t.Run(d.name, func(t *testing.T) {
			const tries = 5
			said := ""
			for range tries {
				if err := e.Clear(ctx, p); err != nil {
					t.Fatal(err)
				}
				if err := e.Set(ctx, p, n, in(10*time.Minute)); err != nil {
					t.Fatal(err)
				}
				if err := theirs.Set(ctx, kernel.place, d.n, time.Time{}); err != nil {
					t.Fatal(err)
				}
				a.next, b.next = 0, 0
				for range sent {
					a.send(1, 64, 0)
					b.send(1, 64, 150*time.Microsecond)
				}
				// A normal or Pareto table ends at four deviations.
				time.Sleep(d.n.Delay + 4*d.n.Jitter)
				x, y := outcomeOf(sent, a.drain(20*ms)), outcomeOf(sent, b.drain(20*ms))
				if c := counters(t, e, p); c.Opened > uint64(sent)/1000 {
					said = waited(c)
					continue
				}
				if c := d.by; len(c) == 0 || d.n.Rate > 0 { // nothing random: how many, and how fast
					t.Logf("lost %d and %d of %d, took %s and %s", x.lost(), y.lost(), sent, x.took, y.took)
					// Packets of 64 bytes go with 42 of headers.
					least := time.Duration(float64(time.Second)*106/float64(d.n.Rate))*time.Duration(sent-y.lost()-1) - slower(10*ms)
					if r := float64(y.took) / float64(x.took); r < .8 || r > 1.25 || y.took < least {
						t.Errorf("it took %s, with netem %s, at least %s", y.took, x.took, least)
					}
					if far := math.Abs(float64(x.lost() - y.lost())); far > float64(sent)/10 {
						t.Errorf("lost %d, netem %d of %d", y.lost(), x.lost(), sent)
					}
				}
				for _, c := range d.by {
					v := verdict{d.name + ": " + c.name, c.p(x, y), d.wrong != nil}
					t.Logf("%s: p %.3g (lost %d and %d, bursts %v and %v, median delay %.1f and %.1f ms)", v.name, v.p,
						x.lost(), y.lost(), x.bursts(), y.bursts(), median(x.delays), median(y.delays))
					found = append(found, v)
				}
				return
			}
			t.Fatalf("disturbed each of %d times, the last by %s; a sleep of 1 ms ends up to %s late", tries, said, testenv.Lateness())
		})
	}
	level := familyLevel / float64(len(found))
	for _, v := range found {
		switch {
		case !v.wrong && v.p < level:
			t.Errorf("%s differ: p %.3g, below %.3g", v.name, v.p, level)
		case v.wrong && v.p >= level:
			t.Errorf("%s: p %.3g: the test cannot tell", v.name, v.p)
		}
	}
	t.Logf("%d comparisons at a level of %.2g each", len(found), level)
}

func median(x []float64) float64 {
	if len(x) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(x))[len(x)/2]
}

// The comparisons tell what differs, at the level of the whole family, and let pass
// what does not.
func TestComparisonsTell(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	draw := func(n int, p func(i int, lost bool) float64, delay func() float64) outcome {
		var got []arrival
		lost := false
		for i := range n {
			if lost = r.Float64() < p(i, lost); !lost {
				got = append(got, arrival{number: uint64(i), at: int64(delay() * float64(ms))})
			}
		}
		return outcomeOf(n, got)
	}
	flat := func(p float64) func(int, bool) float64 { return func(int, bool) float64 { return p } }
	chain := func(in, stay float64) func(int, bool) float64 {
		return func(_ int, lost bool) float64 {
			if lost {
				return stay
			}
			return in
		}
	}
	normal := func(dev float64) func() float64 { return func() float64 { return 200 + dev*r.NormFloat64() } }
	level := familyLevel / 30
	for _, d := range []struct {
		by   comparison
		n    int
		a, b func(int, bool) float64
		s, u float64
	}{
		{byLoss, 50_000, flat(.2), flat(.22), 1, 1},
		{byLoss, 500, flat(.2), flat(.4), 1, 1},
		{byBurst, 3000, chain(.1, .5), chain(.1, .7), 1, 1},
		{byBlocks, 3000, chain(.1, .5), chain(.1, .8), 1, 1},
		{byDelay, 600, flat(0), flat(0), 60, 120},
		{bySteps, 1200, flat(0), flat(0), 60, 120},
		{byEarly(200), 3000, flat(0), flat(0), 60, 60},
	} {
		t.Run(fmt.Sprint(d.by.name, d.n), func(t *testing.T) {
			x := draw(d.n, d.a, normal(d.s))
			if p := d.by.p(x, draw(d.n, d.a, normal(d.s))); p < level {
				t.Errorf("the same differ: p %.3g", p)
			}
			other := draw(d.n, d.b, normal(d.u))
			if d.by.name == "ahead" {
				for i := range other.delays {
					other.delays[i] -= 30
				}
			}
			if p := d.by.p(x, other); p >= level {
				t.Errorf("others do not: p %.3g", p)
			}
		})
	}
	// Of 500 pairs that are the same, few have a small p: at most 17 one below 1 %
	// (binomial, beyond that once in 100,000 runs).
	for _, by := range []comparison{byLoss, byBurst, byBlocks, byDelay} {
		small := 0
		for range 500 {
			if by.p(draw(400, flat(.3), normal(60)), draw(400, flat(.3), normal(60))) < .01 {
				small++
			}
		}
		if small > 17 {
			t.Errorf("%s: %d of 500 below 1%%", by.name, small)
		}
	}
	// Tables: Abramowitz and Stegun, 26.8.
	for _, c := range []struct {
		x  float64
		df int
	}{{3.841459, 1}, {5.991465, 2}, {7.814728, 3}, {9.487729, 4}, {11.0705, 5}} {
		if p := chiSquared(c.x, c.df); math.Abs(p-.05) > 1e-5 {
			t.Errorf("chi squared %v with %d: %v", c.x, c.df, p)
		}
	}
}
