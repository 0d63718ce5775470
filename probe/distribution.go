package probe

import (
	"math"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// exactValues is how many values are kept as they are; 160 kB.
	exactValues = 20_000
	// Beyond these, values are counted in classes. The range of the classes is 1 us to
	// 1 h; 3 significant figures are an error of at most 0.1 %.
	leastValue         = int64(time.Microsecond)
	mostValue          = int64(time.Hour)
	significantFigures = 3
)

// distribution is all values of one measure, in ns: each as it was as long as they are
// few, then in the classes of an HDR histogram, so that its memory has a bound (200 kB).
// The largest value is kept in any case, and no value is dropped: what is above the
// range is counted, and stands at the top. The zero value is empty.
type distribution struct {
	exact  []int64
	hist   *hdrhistogram.Histogram
	n      int
	max    int64
	beyond int
}

func (d *distribution) add(v int64) {
	v = max(v, 0)
	d.n++
	d.max = max(d.max, v)
	if d.hist == nil && len(d.exact) < exactValues {
		d.exact = append(d.exact, v)
		return
	}
	d.fold()
	d.count(v)
}

// fold goes over to classes.
func (d *distribution) fold() {
	if d.hist != nil {
		return
	}
	d.hist = hdrhistogram.New(leastValue, mostValue, significantFigures)
	for _, v := range d.exact {
		d.count(v)
	}
	d.exact = nil
}

func (d *distribution) count(v int64) {
	if v > mostValue || d.hist.RecordValue(v) != nil {
		d.beyond++
	}
}

// merge adds the values of another one, which stays as it is.
func (d *distribution) merge(from *distribution) {
	if d.hist == nil && from.hist == nil && len(d.exact)+len(from.exact) <= exactValues {
		d.exact = append(d.exact, from.exact...)
	} else {
		d.fold()
		for _, v := range from.exact {
			d.count(v)
		}
		if from.hist != nil {
			d.hist.Merge(from.hist) // the same range: it drops nothing
		}
		d.beyond += from.beyond
	}
	d.n += from.n
	d.max = max(d.max, from.max)
}

// quantiles are the values at the nearest ranks of percentages, in ms; nil each where
// there is no value.
func (d *distribution) quantiles(percent ...float64) []*float64 {
	out := make([]*float64, len(percent))
	if d.n == 0 {
		return out
	}
	sorted := slices.Clone(d.exact)
	slices.Sort(sorted)
	for i, p := range percent {
		// 99.9 % of 1000 is 999.0000000000001 in floating point
		rank := max(1, int(math.Ceil(p*float64(d.n)/100-1e-9)))
		var v int64
		switch {
		case d.hist == nil:
			v = sorted[rank-1]
		case rank > d.n-d.beyond, rank == d.n:
			v = d.max
		default:
			// asked for the share that is this rank, the library rounds to it
			v = min(d.max, d.hist.ValueAtPercentile(100*float64(rank)/float64(d.hist.TotalCount())))
		}
		ms := milliseconds(time.Duration(v))
		out[i] = &ms
	}
	return out
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
