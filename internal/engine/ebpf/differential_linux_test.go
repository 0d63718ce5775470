package ebpf

import (
	"errors"
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
	"netemd/test/twosample"
)

// outcome is what became of numbered packets.
type outcome struct {
	sent int
	// arrivals counts each number's.
	arrivals []int
	// delays are those of the first arrivals in the order of sending, in ms.
	delays []float64
	// took is from the first to the last arrival.
	took time.Duration
	// pace is the time between two arrivals: the median over groups of them.
	pace time.Duration
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
	const group = 20
	var paces []float64
	for i := group; i < len(got); i++ {
		paces = append(paces, float64(got[i].at-got[i-group].at)/group)
	}
	if len(paces) > 0 {
		o.pace = time.Duration(median(paces))
	}
	return o
}

// share counts the packets of which f holds.
func (o outcome) share(f func(arrivals int) bool) int { return hits(o.which(f)) }

// which says of each packet whether f holds.
func (o outcome) which(f func(arrivals int) bool) []bool {
	of := make([]bool, o.sent)
	for i, a := range o.arrivals {
		of[i] = f(a)
	}
	return of
}

func isLost(arrivals int) bool  { return arrivals == 0 }
func isTwice(arrivals int) bool { return arrivals > 1 }

func (o outcome) lost() int { return o.share(isLost) }

// early says of each packet that arrived whether its delay was below d.
func (o outcome) early(d float64) []bool {
	of := make([]bool, len(o.delays))
	for i, x := range o.delays {
		of[i] = x < d
	}
	return of
}

func hits(of []bool) (n int) {
	for _, yes := range of {
		if yes {
			n++
		}
	}
	return n
}

// bursts counts the runs of lost packets by length: 1, 2, 3, 4 and more.
func (o outcome) bursts() []int { return runs(o.which(isLost)) }

// runs counts those of packets to which the same happened by length: 1, 2, 3, 4 and
// more.
func runs(of []bool) []int {
	lengths, run := make([]int, 4), 0
	for _, yes := range append(of, false) {
		if yes {
			run++
			continue
		}
		if run > 0 {
			lengths[min(run, len(lengths))-1]++
		}
		run = 0
	}
	return lengths
}

// blocks are the shares in blocks of packets, for draws that hang together.
func blocks(of []bool) (shares []float64) {
	const size = 20
	for i := 0; i+size <= len(of); i += size {
		shares = append(shares, float64(hits(of[i:i+size]))/size)
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

// comparison is one figure of two outcomes.
type comparison struct {
	name string
	p    func(a, b outcome) float64
}

// together compares what happened to packets whose draws hang together: how often, and
// in runs of which lengths.
func together(name string, of func(outcome) []bool) []comparison {
	return []comparison{
		{name + " in blocks", func(a, b outcome) float64 { return twosample.Means(blocks(of(a)), blocks(of(b))) }},
		{name + " in runs", func(a, b outcome) float64 { return twosample.Counts(runs(of(a)), runs(of(b))) }},
	}
}

func inTurn(f func(arrivals int) bool) func(outcome) []bool {
	return func(o outcome) []bool { return o.which(f) }
}

var (
	byLoss   = comparison{"lost", func(a, b outcome) float64 { return twosample.Proportions(a.lost(), a.sent, b.lost(), b.sent) }}
	byBurst  = comparison{"burst lengths", func(a, b outcome) float64 { return twosample.Counts(a.bursts(), b.bursts()) }}
	byBlocks = together("lost", inTurn(isLost))[0]
	byDelay  = comparison{"delays", func(a, b outcome) float64 { return twosample.Distributions(few(a.delays), few(b.delays)) }}
	bySteps  = comparison{"steps of delay", func(a, b outcome) float64 { return twosample.Distributions(few(a.steps()), few(b.steps())) }}
	byTwice  = comparison{"duplicated", func(a, b outcome) float64 {
		return twosample.Proportions(a.share(isTwice), a.sent, b.share(isTwice), b.sent)
	}}
)

func early(d float64) func(outcome) []bool { return func(o outcome) []bool { return o.early(d) } }

func byEarly(d float64) comparison {
	return comparison{"ahead", func(a, b outcome) float64 {
		return twosample.Proportions(hits(a.early(d)), len(a.delays), hits(b.early(d)), len(b.delays))
	}}
}

// few keeps a sample small enough that the guest's clock, which is coarse, is no
// difference between engines: 3000 tell a shift by some ms of a delay that is spread
// over 200 ms.
func few(x []float64) []float64 { return x[:min(len(x), 3000)] }

// twoPeaks is a table of one's own: a jitter before the mean or one after it, each with
// its own width.
var twoPeaks = func() qdisc.Samples {
	var table []int16
	for i := range 256 {
		table = append(table, int16(-qdisc.TableScale+8*i), int16(qdisc.TableScale+16*i))
	}
	return qdisc.SamplesOf(table)
}()

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
	{"duplicate with correlation", qdisc.Netem{Duplicate: 30, DuplicateCorrelation: 40}, nil, 0, together("duplicated", inTurn(isTwice))},
	{"duplicate and loss", qdisc.Netem{Duplicate: 30, Loss: 30}, nil, 0, []comparison{byTwice, byLoss}},
	{"corrupt", qdisc.Netem{Corrupt: 30}, nil, 0, []comparison{byLoss}},
	{"corrupt with correlation", qdisc.Netem{Corrupt: 35, CorruptCorrelation: 40}, nil, 0, together("lost", inTurn(isLost))},
	{"delay", qdisc.Netem{Delay: 60 * ms}, nil, 0, []comparison{byLoss}},
	{"uniform", qdisc.Netem{Delay: 150 * ms, Jitter: 100 * ms}, nil, 0, []comparison{byDelay, bySteps}},
	{"normal", qdisc.Netem{Delay: 200 * ms, Jitter: 60 * ms, Distribution: qdisc.Normal}, nil, 0, []comparison{byDelay}},
	{"pareto", qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.Pareto}, nil, 0, []comparison{byDelay}},
	{"paretonormal", qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.ParetoNormal}, nil, 0, []comparison{byDelay}},
	{"a table of one's own", qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.Custom, Samples: twoPeaks}, nil, 0, []comparison{byDelay, bySteps}},
	{"delay with correlation", qdisc.Netem{Delay: 150 * ms, Jitter: 100 * ms, DelayCorrelation: 50}, nil, 0, []comparison{bySteps}},
	{"reorder", qdisc.Netem{Delay: 100 * ms, Reorder: 25}, nil, 0, []comparison{byEarly(50)}},
	{"reorder with correlation", qdisc.Netem{Delay: 100 * ms, Reorder: 35, ReorderCorrelation: 40}, nil, 0, together("ahead", early(50))},
	{"gap", qdisc.Netem{Delay: 100 * ms, Reorder: 50, Gap: 4}, nil, 0, []comparison{byEarly(50)}},
	{"rate", qdisc.Netem{Rate: 40_000}, nil, 0, []comparison{byLoss}},
	{"limit", qdisc.Netem{Rate: 40_000, Limit: 20}, nil, 0, nil},
	{"rate in cells", qdisc.Netem{Rate: 25_000, PacketOverhead: 50, CellSize: 48, CellOverhead: 5, Limit: 10_000}, nil, 0, []comparison{byLoss, byDelay}},
	{"rate in whole cells", qdisc.Netem{Rate: 25_000, PacketOverhead: -10, CellSize: 48, CellOverhead: -4, Limit: 10_000}, nil, 0, []comparison{byLoss}},
	{"slot", qdisc.Netem{Slot: qdisc.Slot{MinDelay: 100 * ms, MaxDelay: 100 * ms}}, nil, 0, []comparison{byDelay}},

	{"wrong loss", qdisc.Netem{Loss: 20}, &qdisc.Netem{Loss: 60}, 0, []comparison{byLoss}},
	{"wrong jitter", qdisc.Netem{Delay: 150 * ms, Jitter: 100 * ms}, &qdisc.Netem{Delay: 150 * ms, Jitter: 40 * ms}, 0, []comparison{byDelay}},
	{"wrong correlation", qdisc.Netem{Duplicate: 30, DuplicateCorrelation: 40}, &qdisc.Netem{Duplicate: 30}, 3000, together("duplicated", inTurn(isTwice))[:1]},
	{"wrong table", qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.Custom, Samples: twoPeaks},
		&qdisc.Netem{Delay: 150 * ms, Jitter: 60 * ms, Distribution: qdisc.Normal}, 0, []comparison{byDelay}},
	{"wrong cells", qdisc.Netem{Rate: 25_000, PacketOverhead: 50, CellSize: 48, CellOverhead: 5, Limit: 10_000},
		&qdisc.Netem{Rate: 25_000, PacketOverhead: 50, CellSize: 48, Limit: 10_000}, 3000, []comparison{byDelay}},
	{"slightly wrong loss", qdisc.Netem{Loss: 20}, &qdisc.Netem{Loss: 22}, 50_000, []comparison{byLoss}},
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
	var family twosample.Family
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
				together, holds := 1, d.n.Rate > 0 && int(d.n.Limit) >= sent
				if holds {
					together = 20 // so that they come faster than they leave, however late a sleep ends
				}
				for i := range sent {
					a.send(1, 64, 0)
					pause := time.Duration(0)
					if (i+1)%together == 0 {
						pause = 150 * time.Microsecond
					}
					b.send(1, 64, pause)
				}
				// A normal or Pareto table ends at four deviations.
				time.Sleep(d.n.Delay + 4*d.n.Jitter)
				if holds {
					time.Sleep(paceOf(d.n, 64+42) * time.Duration(sent))
				}
				x, y := outcomeOf(sent, a.drain(20*ms)), outcomeOf(sent, b.drain(20*ms))
				// So few that passed without a fault move a count by a tenth of its deviation.
				if c := counters(t, e, p); float64(c.Opened) > math.Sqrt(float64(sent))/5 {
					said = waited(c)
					continue
				}
				if d.n.Rate > 0 && d.wrong == nil { // nothing random: how many, and how fast
					pace := paceOf(d.n, 64+42) // with the headers
					t.Logf("lost %d and %d of %d, took %s and %s, between two packets %s and %s, by the rule %s",
						x.lost(), y.lost(), sent, x.took, y.took, x.pace, y.pace, pace)
					least := pace*time.Duration(sent-y.lost()-1) - slower(10*ms)
					if r := float64(y.took) / float64(x.took); r < .8 || r > 1.25 || y.took < least {
						t.Errorf("it took %s, with netem %s, at least %s", y.took, x.took, least)
					}
					// A tenth is what a cell's overhead makes; what a busy machine adds to one
					// packet it takes from the next.
					for _, of := range []time.Duration{x.pace, y.pace} {
						if r := float64(of) / float64(pace); holds && (r < .95 || r > 1.05) {
							t.Errorf("between two packets %s, with netem %s, want %s", y.pace, x.pace, pace)
						}
					}
					if far := math.Abs(float64(x.lost() - y.lost())); far > float64(sent)/10 {
						t.Errorf("lost %d, netem %d of %d", y.lost(), x.lost(), sent)
					}
				}
				for _, c := range d.by {
					p := c.p(x, y)
					t.Logf("%s: p %.3g (lost %d and %d, bursts %v and %v, median delay %.1f and %.1f ms)", c.name, p,
						x.lost(), y.lost(), x.bursts(), y.bursts(), median(x.delays), median(y.delays))
					if d.wrong != nil {
						family.Differ(d.name+": "+c.name, p)
					} else {
						family.Same(d.name+": "+c.name, p)
					}
				}
				return
			}
			t.Fatalf("disturbed each of %d times, the last by %s; a sleep of 1 ms ends up to %s late", tries, said, testenv.Lateness())
		})
	}
	if long {
		compareMarks(t, &family)
	}
	family.Judge(t)
}

// compareMarks compares what becomes of packets that can be marked as congested, and of
// those that cannot, in labs of their own.
func compareMarks(t *testing.T, family *twosample.Family) {
	kernel, ebpf := newLab(t), newLab(t)
	theirs, e := netem.New(netem.Config{}), newEngine(t, Config{})
	t.Cleanup(func() {
		if err := theirs.Close(); err != nil {
			t.Error(err)
		}
	})
	n := qdisc.Netem{Loss: 20, ECN: true, Delay: ms}
	set(t, e, onPort(ebpf.place), n)
	if err := errors.Join(theirs.Neutral(ctx, kernel.place), theirs.Set(ctx, kernel.place, n, time.Time{})); err != nil {
		t.Fatal(err)
	}
	// As many as a socket's buffer holds, again and again.
	const at, rounds = 100, 30
	for bits := range 3 {
		want := at
		if bits == 0 {
			want = at / 2 // a fifth is lost
		}
		marked, arrived, lengths := [2]int{}, [2]int{}, [2][]int{make([]int, 4), make([]int, 4)}
		for range rounds {
			for i, l := range []*lab{kernel, ebpf} {
				of := make([]bool, 0, at)
				for _, b := range l.ecnFlow(t, client4, server4, bits, at, want) {
					of = append(of, b == congested)
				}
				arrived[i] += len(of)
				marked[i] += hits(of)
				for k, n := range runs(of) {
					lengths[i][k] += n
				}
			}
		}
		const sent = at * rounds
		t.Logf("ECN bits %d: of %d packets %v arrived, %v marked, in runs of 1, 2, ... %v", bits, sent, arrived, marked, lengths)
		if bits == 0 && marked != [2]int{} || bits != 0 && arrived != [2]int{sent, sent} {
			t.Errorf("with ECN bits %d %v packets of %d arrived, %v of them marked", bits, arrived, sent, marked)
		}
		name := fmt.Sprintf("marks, with ECN bits %d: ", bits)
		family.Same(name+"arrived", twosample.Proportions(arrived[0], sent, arrived[1], sent))
		family.Same(name+"marked", twosample.Proportions(marked[0], sent, marked[1], sent))
		family.Same(name+"in runs", twosample.Counts(lengths[0], lengths[1]))
	}
}

// paceOf is the time between two frames of size bytes that wait for n's rate
// (packet_time_ns of net/sched/sch_netem.c).
func paceOf(n qdisc.Netem, size int64) time.Duration {
	size += int64(n.PacketOverhead)
	if cell := int64(n.CellSize); cell > 0 {
		cells := size / cell
		if size > cells*cell { // one more for the rest
			cells++
		}
		size = cells * (cell + int64(n.CellOverhead))
	}
	return time.Duration(float64(size) * float64(time.Second) / float64(n.Rate))
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
	level := twosample.Level / 30
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
}
