package netem

import (
	"math"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// noise is how many packets the kernel may send by itself during a test: ARP,
// neighbour discovery, multicast listener reports.
const noise = 40

func (b *bench) set(t *testing.T, e *Engine, n qdisc.Netem) {
	t.Helper()
	if err := e.Set(t.Context(), b.place, n, time.Time{}); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) counters(t *testing.T, e *Engine) fault.Counters {
	t.Helper()
	st, err := e.Read(t.Context(), b.place)
	if err != nil {
		t.Fatal(err)
	}
	return st.Counters
}

// within reports whether a count is what was expected, give or take the noise.
func within(got uint64, want int) bool {
	return int(got) >= want && int(got) <= want+noise
}

func TestTrafficLoss(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), New(Config{})
	const count = 4000
	b.send(t, 1, 0, nil) // the neighbour is known
	for _, n := range []qdisc.Netem{{Loss: 20}, {Loss: 20, LossCorrelation: 25}, {Loss: 100}} {
		if err := e.Clear(t.Context(), b.place); err != nil {
			t.Fatal(err)
		}
		b.set(t, e, n)
		lost := count - len(b.send(t, count, 0, nil))
		p := float64(qdisc.CorrelatedShare(n.Loss, n.LossCorrelation)) / 100
		rho := float64(n.LossCorrelation) / 100
		// 5 standard deviations of a binomial count, wider for correlated draws.
		bound := 5 * math.Sqrt(count*p*(1-p)*(1+rho)/(1-rho))
		if math.Abs(float64(lost)-count*p) > bound {
			t.Errorf("%v: %d of %d lost, want %.0f +-%.0f", n, lost, count, count*p, bound)
		}
		c := b.counters(t, e)
		if !within(c.Seen, count) || !within(c.Lost, lost) || c.Overflow != 0 || c.Delayed != 0 {
			t.Errorf("%v: %d of %d lost, counters %+v", n, lost, count, c)
		}
	}
}

// A change in place loses nothing and lets nothing through early; nor does a
// clear lose anything.
func TestTrafficThroughChanges(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), New(Config{})
	if err := e.Neutral(t.Context(), b.place); err != nil {
		t.Fatal(err)
	}
	b.send(t, 1, 0, nil)
	before := b.root(t).Stats.Drops
	const count = 600
	arrived := b.send(t, count, ms, func(i int) {
		switch i {
		case 100:
			b.set(t, e, qdisc.Netem{Delay: 50 * ms})
		case 200, 300:
			b.set(t, e, qdisc.Netem{Delay: 100 * ms})
		case 400:
			b.set(t, e, qdisc.Netem{Delay: 50 * ms, Corrupt: 1e-7})
			b.set(t, e, qdisc.Netem{Delay: 50 * ms})
		case 500:
			if err := e.Clear(t.Context(), b.place); err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(arrived) != count {
		t.Errorf("%d of %d arrived", len(arrived), count)
	}
	if after := b.root(t).Stats.Drops; after != before {
		t.Errorf("the qdisc dropped %d", after-before)
	}
	for _, a := range arrived {
		least := time.Duration(0)
		switch {
		case a.number >= 200 && a.number < 400:
			least = 100 * ms
		case a.number >= 100 && a.number < 500:
			least = 50 * ms
		}
		if a.took < least {
			t.Errorf("packet %d took %v, want %v or more", a.number, a.took, least)
		}
	}
}

func TestTrafficReorder(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), New(Config{})
	b.send(t, 1, 0, nil)
	const count, delay = 800, 400 * ms
	b.set(t, e, qdisc.Netem{Delay: delay, Reorder: 25})
	arrived := b.send(t, count, ms, nil)
	ahead := 0
	for _, a := range arrived {
		if a.took < delay {
			ahead++
		}
	}
	bound := 5 * math.Sqrt(count*.25*.75)
	if len(arrived) != count || math.Abs(float64(ahead)-count*.25) > bound {
		t.Errorf("%d arrived, %d ahead, want %d and %.0f +-%.0f", len(arrived), ahead, count, count*.25, bound)
	}
	c := b.counters(t, e)
	if !within(c.Reordered, ahead) || !within(c.Delayed, count-ahead) || c.Lost != 0 || c.Overflow != 0 {
		t.Errorf("%d ahead, counters %+v", ahead, c)
	}
}

// A full queue is overflow, not loss.
func TestTrafficOverflow(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), New(Config{})
	b.send(t, 1, 0, nil)
	b.set(t, e, qdisc.Netem{Delay: 500 * ms, Limit: 10})
	const count = 200
	arrived := len(b.send(t, count, 0, nil))
	c := b.counters(t, e)
	if arrived >= count || !within(c.Overflow, count-arrived) || c.Lost != 0 {
		t.Errorf("%d of %d arrived, counters %+v", arrived, count, c)
	}
}

// The kernel keeps a table when a change names none, and does not tell: only the
// packets do. Normal jitter of half the delay sends 16 % in less than that half,
// uniform jitter none.
func TestTrafficDistributionEnds(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), New(Config{})
	b.send(t, 1, 0, nil)
	const count = 400
	early := func(e *Engine, d qdisc.Distribution) int {
		b.set(t, e, qdisc.Netem{Delay: 100 * ms, Jitter: 50 * ms, Distribution: d})
		n := 0
		for _, a := range b.send(t, count, ms, nil) {
			if a.took < 50*ms {
				n++
			}
		}
		return n
	}
	// P(a count of 400 with p 0.16 is below 10) < 1e-16. Wake-ups are late at most.
	if n := early(e, qdisc.Normal); n < 10 {
		t.Errorf("normal: %d of %d early", n, count)
	}
	if n := early(e, qdisc.Uniform); n != 0 {
		t.Errorf("uniform after normal: %d of %d early", n, count)
	}
	early(e, qdisc.Normal)
	// An engine that starts anew does not know of the table.
	if n := early(New(Config{}), ""); n != 0 {
		t.Errorf("uniform after a restart: %d of %d early", n, count)
	}
}

func TestTrafficDuplicateAndCorrupt(t *testing.T) {
	testenv.Netem(t)
	b, e := newBench(t), New(Config{})
	b.send(t, 1, 0, nil)
	const count = 1000
	b.set(t, e, qdisc.Netem{Duplicate: 30})
	bound := 5 * math.Sqrt(count*.3*.7)
	if got := len(b.send(t, count, 0, nil)); math.Abs(float64(got)-count*1.3) > bound {
		t.Errorf("duplicate 30%%: %d arrived of %d, want %.0f +-%.0f", got, count, count*1.3, bound)
	}
	b.set(t, e, qdisc.Netem{Corrupt: 100})
	// Whole is what was hit in the source's hardware address, 6 of some 56 bytes:
	// 21 of 200, 5 standard deviations of 4.4.
	if got := len(b.send(t, 200, 0, nil)); got > 43 {
		t.Errorf("corrupt 100%%: %d of 200 arrived whole", got)
	}
	st, err := e.Read(t.Context(), b.place)
	if err != nil || len(st.CountersMissing) != 1 || st.CountersMissing[0] != "corrupted" {
		t.Errorf("missing counters %v, %v", st.CountersMissing, err)
	}
}
