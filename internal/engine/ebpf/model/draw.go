package model

import (
	"hash/fnv"
	"math/rand/v2"

	"netemd/qdisc"
)

// draw is one stream of random numbers with netem's correlation (struct crndstate).
type draw struct {
	source rand.PCG
	// share and rho are 32-bit fractions, 2^32-1 being 100 %.
	share, rho uint32
	last       uint64
}

func newDraw(seed uint64, name string, share, rho qdisc.Percent) draw {
	d := draw{source: *rand.NewPCG(seed, stream(name)), share: share.Fraction(), rho: rho.Fraction()}
	d.last = uint64(d.uniform())
	return d
}

// stream numbers a stream by its name.
func stream(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // it never fails
	return h.Sum64()
}

func (d *draw) uniform() uint32 { return uint32(d.source.Uint64() >> 32) }

// next is get_crandom.
func (d *draw) next() uint32 {
	if d.rho == 0 {
		return d.uniform()
	}
	rho := uint64(d.rho) + 1
	d.last = (uint64(d.uniform())*(1<<32-rho) + d.last*rho) >> 32
	return uint32(d.last)
}

// hit reports whether it happens this time. What never happens draws nothing.
func (d *draw) hit() bool { return d.share != 0 && d.share >= d.next() }
