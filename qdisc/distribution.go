package qdisc

import (
	"math"
	"sync"
)

// tableScale is what one jitter is in a table's samples (NETEM_DIST_SCALE in
// include/uapi/linux/pkt_sched.h), tableSize the number of samples that
// iproute2's tables have.
const (
	tableScale = 8192
	tableSize  = 4096
)

// tables are the samples that sch_netem draws delays from, in units of
// jitter/tableScale: the inverse of the distribution function at equal steps.
// They are computed by the rules of iproute2's generators (netem/normal.c,
// pareto.c, paretonormal.c, from the public-domain NIST Net), so no file is
// needed and the samples are those that tc would send.
var tables = map[Distribution]func() []int16{
	Uniform:      sync.OnceValue(func() []int16 { return tabulate(uniformSample) }),
	Normal:       sync.OnceValue(func() []int16 { return tabulate(normalSample) }),
	Pareto:       sync.OnceValue(func() []int16 { return tabulate(paretoSample) }),
	ParetoNormal: sync.OnceValue(func() []int16 { return tabulate(paretoNormalSample) }),
}

func tabulate(sample func(k int) int) []int16 {
	t := make([]int16, tableSize)
	for k := range t {
		t[k] = int16(min(max(sample(k), math.MinInt16), math.MaxInt16))
	}
	return t
}

// uniformSample covers -1..+1 jitter evenly. tc has no such table, since netem
// draws uniformly without one; it takes the place of a table that is in force.
func uniformSample(k int) int {
	return -tableScale + 2*tableScale/tableSize*k + tableScale/tableSize
}

// normalSample is the largest x on a grid of step 0.00005 from -10 on whose
// distribution function, times 16384, rounds to 4k.
func normalSample(k int) int {
	const step = .00005
	steps := 4 * tableSize
	edge := math.Sqrt2 * math.Erfinv(2*(float64(4*k)+.5)/float64(steps)-1)
	x := -10 + math.Floor((edge+10)/step)*step
	return int(math.RoundToEven(x * tableScale))
}

// paretoSample has shape 3, shifted to mean 0 and scaled to the table.
func paretoSample(k int) int {
	const shape = 3.0
	v := 1 / math.Pow(float64(65536-16*k)/65536, 1/shape)
	v = (v - 1.5) * (4.0 / 3.0) * tableScale
	return int(math.RoundToEven(min(v, math.MaxInt16)))
}

// paretoNormalSample is a quarter normal and three quarters Pareto, which comes
// near to measured delays.
func paretoNormalSample(k int) int {
	return (normalSample(k) + 3*paretoSample(k)) / 4
}
