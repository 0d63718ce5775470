package policy

import (
	"math"
	"math/rand/v2"
	"time"
)

// Delay is the pause before the retry n, from 1; before is the pause before the last one, 0 at
// first. Fields are not 0.
func (r Retry) delay(n int, before time.Duration, random *rand.Rand) time.Duration {
	grown := r.MaxDelay
	if f := float64(r.Base) * math.Pow(r.Factor, float64(n-1)); f < float64(r.MaxDelay) {
		grown = time.Duration(f)
	}
	switch r.Backoff {
	case Fixed:
		return r.Base
	case Exponential:
		return grown
	case FullJitter:
		return between(random, 0, grown)
	case EqualJitter:
		return between(random, grown/2, grown)
	case DecorrelatedJitter:
		return min(r.MaxDelay, between(random, r.Base, 3*max(before, r.Base)))
	}
	return 0
}

// between draws evenly, both ends included.
func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}

// streamBackoff names the stream of random numbers that pauses are drawn from.
const streamBackoff = 0xbac0ff

// source is the stream for the retry n of the call seq: no other call or retry draws from it.
func source(seed uint64, seq, n int) *rand.Rand {
	return rand.New(rand.NewPCG(seed^streamBackoff, mix(uint64(seq)<<8|uint64(n&0xff))))
}

// mix spreads numbers that follow one another over all 64 bits (splitmix64, Steele et al.,
// 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
