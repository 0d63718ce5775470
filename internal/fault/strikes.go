package fault

import (
	"iter"
	"math/rand/v2"
	"time"
)

// Strike is one outage of a timetable.
type Strike struct {
	// Number counts from 1.
	Number int
	// At is when it begins, since the fault did.
	At      time.Duration
	Service string
}

// The two streams that an Outage draws from its seed: times, and services.
const (
	outageTimes    = 0x6f75746167652074 // "outage t"
	outageServices = 0x6f75746167652073 // "outage s"
)

// Strikes is the timetable: a function of o alone. Each strike takes one draw of each kind. By
// it no more than Limit services are down at once; a strike for which there is no room waits
// for the first that is to be back. o must be valid.
func (o Outage) Strikes() iter.Seq[Strike] {
	return func(yield func(Strike) bool) {
		times, services := rand.NewPCG(o.Seed, outageTimes), rand.NewPCG(o.Seed, outageServices)
		back := make([]time.Duration, len(o.Services)) // when each is to be back; 0: it never failed
		var due, at time.Duration
		for number := 1; o.Total() == 0 || number <= o.Total(); number++ {
			at = max(at, due)
			var up []int
			for {
				up = up[:0]
				next := time.Duration(-1) // the first that is to be back
				for i, b := range back {
					switch {
					case b <= at:
						up = append(up, i)
					case next < 0 || b < next:
						next = b
					}
				}
				if len(o.Services)-len(up) < o.Limit() {
					break
				}
				at = next
			}
			i := up[int(unit(services)*float64(len(up)))]
			back[i] = at + o.Down
			if o.Down == 0 && o.Action != Restart {
				back[i] = at + maxOutageTime
			}
			if !yield(Strike{Number: number, At: at, Service: o.Services[i]}) {
				return
			}
			due += vary(times, o.Every, float64(o.Jitter))
		}
	}
}

// Length is from the beginning of the first strike to the planned end of the last, false where
// there is no end but the fault's own.
func (o Outage) Length() (time.Duration, bool) {
	if o.Total() == 0 || o.Down == 0 && o.Action != Restart {
		return 0, false
	}
	var last time.Duration
	for s := range o.Strikes() {
		last = s.At
	}
	return last + o.Down, true
}

// unit draws from 0 to 1, without 1, as math/rand/v2.Float64 does.
func unit(from *rand.PCG) float64 {
	const scale = 1 << 53
	return float64(from.Uint64()>>11) / scale
}

// vary draws a time that differs from d by up to a share of percent, in whole microseconds.
func vary(from *rand.PCG, d time.Duration, percent float64) time.Duration {
	u := 2*unit(from) - 1
	return time.Duration(float64(d) * (1 + u*percent/100)).Round(time.Microsecond)
}
