package load

import (
	"math"
	"math/rand/v2"
	"time"

	"netemd/probe"
)

// arrivalStream is the random stream of arrivals: a policy that draws from the same
// seed has streams of its own.
const arrivalStream = 0x61727269_76616c73 // "arrivals"

// schedule gives the times at which calls are due, from the start of the run, in order.
// Call k of an even one is due when the sum of the rate reaches k; with Poisson the
// sum is reached in exponential steps, which makes independent arrivals of any rate
// that changes over time.
type schedule struct {
	stages []probe.Stage
	draw   *rand.Rand // nil: even

	// of the stage under way
	at     int
	begins time.Duration
	passed float64 // the sum of the rate before the stage
	sum    float64 // the sum of the rate at the next call
	first  bool
}

// newSchedule makes the schedule of an open loop; the last stage without an end goes
// on for ever, or is a ramp to length.
func newSchedule(o probe.OpenLoop, length time.Duration, seed uint64) *schedule {
	s := &schedule{stages: append([]probe.Stage{}, o.Stages...), first: true}
	if o.Poisson {
		s.draw = rand.New(rand.NewPCG(seed, arrivalStream))
	}
	var before time.Duration
	last := &s.stages[len(s.stages)-1]
	for _, x := range o.Stages[:len(o.Stages)-1] {
		before += x.For
	}
	if last.For == 0 && last.From != last.To {
		last.For = length - before
	}
	if last.For != 0 { // its last rate goes on, where the run does
		s.stages = append(s.stages, probe.Stage{From: last.To, To: last.To})
	}
	return s
}

// next is when the next call is due; false when there is none any more.
func (s *schedule) next() (time.Duration, bool) {
	switch {
	case s.draw != nil:
		s.sum += s.draw.ExpFloat64()
	case s.first: // an even schedule begins with a call
	default:
		s.sum++
	}
	s.first = false
	for ; s.at < len(s.stages); s.at++ {
		x := s.stages[s.at]
		rest := s.sum - s.passed
		if x.For == 0 {
			if x.From == 0 {
				return 0, false
			}
			return s.begins + seconds(rest/x.From), true
		}
		whole := (x.From + x.To) / 2 * x.For.Seconds()
		// at the very end of a stage the next one has the call, if there is rate in this one
		if whole > 0 && rest < whole {
			return s.begins + seconds(reach(x, rest)), true
		}
		s.passed += whole
		s.begins += x.For
	}
	return 0, false
}

// reach is the time in s, from a stage's beginning, at which the sum of its rate is x:
// the root of from*t + (to-from)*t*t/(2*length), in the form that neither loses digits
// nor divides by a slope of 0.
func reach(s probe.Stage, x float64) float64 {
	slope := (s.To - s.From) / s.For.Seconds()
	root := math.Sqrt(max(0, s.From*s.From+2*slope*x))
	if s.From+root == 0 { // the beginning of a ramp from 0
		return 0
	}
	return 2 * x / (s.From + root)
}

// never is 73 years: what is due later is so for no run, and sums of times do not overflow.
const never = time.Duration(1 << 61)

func seconds(s float64) time.Duration {
	if s >= never.Seconds() {
		return never
	}
	// the sum of the rate says when to a fraction of a nanosecond; what rounds down would
	// put an even schedule's calls one before their time
	return time.Duration(math.Round(s * float64(time.Second)))
}
