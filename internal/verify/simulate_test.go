package verify

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// simulation is netem's enqueue path (net/sched/sch_netem.c), with a queue that
// serves packets when they are due, and a machine that is late.
type simulation struct {
	n    qdisc.Netem
	rand *rand.Rand
	// noise is the mean of how late each thing is, exponentially distributed.
	noise time.Duration
	// size of each frame, in bytes.
	size    int
	capable bool

	loss, duplicate, reorder, corrupt, spread draw
	state                                     int
	counter                                   uint32
	table                                     []int16
	queue                                     []departure
	counters                                  fault.Counters
	arrivals                                  []arrival
	order                                     int
}

type departure struct {
	arrival
	order int
}

// draw is get_crandom.
type draw struct {
	rho  uint64
	last uint64
}

func (d *draw) next(r *rand.Rand) uint32 {
	v := uint64(r.Uint32())
	if d.rho == 0 {
		return uint32(v)
	}
	rho := d.rho + 1
	d.last = (v*(1<<32-rho) + d.last*rho) >> 32
	return uint32(d.last)
}

func (s *simulation) hit(d *draw, share qdisc.Percent) bool {
	return share > 0 && share.Fraction() >= d.next(s.rand)
}

func (s *simulation) chance(p qdisc.Percent) bool { return s.rand.Float64() < float64(p)/100 }

func newSimulation(n qdisc.Netem, seed uint64) *simulation {
	n = n.Normalize()
	s := &simulation{n: n, rand: rand.New(rand.NewPCG(seed, 1)), noise: 40 * time.Microsecond, size: 270, table: n.JitterTable(), state: 1}
	for d, rho := range map[*draw]qdisc.Percent{
		&s.loss: n.LossCorrelation, &s.duplicate: n.DuplicateCorrelation, &s.reorder: n.ReorderCorrelation,
		&s.corrupt: n.CorruptCorrelation, &s.spread: n.DelayCorrelation,
	} {
		*d = draw{rho: uint64(rho.Fraction()), last: uint64(s.rand.Uint32())}
	}
	return s
}

func (s *simulation) late() time.Duration {
	return time.Duration(s.rand.ExpFloat64() * float64(s.noise))
}

func (s *simulation) lost() bool {
	n := s.n
	switch {
	case n.GilbertElliott != qdisc.GilbertElliott{}:
		g := n.GilbertElliott
		if g.LossBad == 0 {
			g.LossBad = 100
		}
		if s.state == 1 {
			if s.chance(g.P) {
				s.state = 2
			}
			return s.chance(g.LossGood)
		}
		if s.chance(g.R) {
			s.state = 1
		}
		return s.chance(g.LossBad)
	case n.LossState != qdisc.LossState{}:
		u := qdisc.Percent(100 * s.rand.Float64())
		l := n.LossState
		switch s.state {
		case 1:
			switch {
			case u < l.P14:
				s.state = 4
				return true
			case u < l.P14+l.P13:
				s.state = 3
				return true
			}
		case 2:
			if u < l.P23 {
				s.state = 3
				return true
			}
		case 3:
			switch {
			case u < l.P32:
				s.state = 2
			case u < l.P32+l.P31:
				s.state = 1
			default:
				return true
			}
		case 4:
			s.state = 1
		}
		return false
	}
	return s.hit(&s.loss, n.Loss)
}

func (s *simulation) latency() time.Duration {
	n := s.n
	if n.Jitter == 0 {
		return n.Delay
	}
	r := s.spread.next(s.rand)
	if s.table == nil {
		return time.Duration(int64(uint64(r)%uint64(2*n.Jitter)) + int64(n.Delay-n.Jitter))
	}
	return n.Delay + n.Jitter*time.Duration(s.table[int(r)%len(s.table)])/qdisc.TableScale
}

// packet comes in at now.
func (s *simulation) packet(number int, now time.Duration, original bool) {
	s.drain(now)
	count, marked := 1, false
	if original {
		s.counters.Seen++
		if s.hit(&s.duplicate, s.n.Duplicate) {
			count++
		}
	}
	if s.lost() {
		if s.n.ECN && s.capable {
			marked = true
		} else {
			count--
			s.counters.Lost++
		}
	}
	if count == 0 {
		return
	}
	damaged := s.hit(&s.corrupt, s.n.Corrupt)
	if len(s.queue) >= int(s.n.Limit) {
		s.counters.Overflow++
		return
	}
	if count > 1 {
		s.packet(number, now, false)
	}
	d := departure{arrival{number: number, damaged: damaged, marked: marked}, s.order}
	s.order++
	if s.n.Reorder == 0 || s.counter < s.n.Gap-1 || s.n.Reorder.Fraction() < s.reorder.next(s.rand) {
		s.counter++
		delay := max(s.latency(), 0)
		if s.n.Rate > 0 {
			if len(s.queue) > 0 {
				last := s.queue[len(s.queue)-1].at
				delay = max(0, delay-(last-now))
				now = last
			}
			delay += time.Duration(float64(onWire(s.n, s.size)) / float64(s.n.Rate) * 1e9)
		}
		d.at = now + delay
	} else {
		d.at, s.counter = now, 0
	}
	at, _ := slices.BinarySearchFunc(s.queue, d, func(a, b departure) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.order, b.order))
	})
	s.queue = slices.Insert(s.queue, at, d)
}

// drain lets leave what is due.
func (s *simulation) drain(now time.Duration) {
	for len(s.queue) > 0 && s.queue[0].at <= now {
		a := s.queue[0].arrival
		a.at += s.late()
		if n := len(s.arrivals); n > 0 { // a late queue is late with all that is in it
			a.at = max(a.at, s.arrivals[n-1].at)
		}
		s.arrivals = append(s.arrivals, a)
		s.queue = s.queue[1:]
	}
}

// run sends packets at those times.
func (s *simulation) run(due []time.Duration) sighting {
	out := sighting{netem: s.n, engine: fault.Netem, size: s.size, capable: s.capable}
	for i, at := range due {
		late := s.late()
		out.late = append(out.late, late)
		out.sent = append(out.sent, at+late)
		s.packet(i, at+late+s.late(), true)
	}
	s.drain(1 << 60)
	slices.SortStableFunc(s.arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	slices.Sort(out.late)
	out.arrivals = s.arrivals
	out.counters = &s.counters
	return out
}
