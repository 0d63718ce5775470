package experiment

import (
	"errors"
	"slices"
	"strconv"
	"time"

	"netemd/internal/kpi"
	"netemd/probe"
)

// retries are those of a call beside its first attempt.
func retries(s probe.Sample) []probe.Sample {
	all := s.Tries()
	return all[min(1, len(all)):]
}

// starts are when the attempts that of gives for each call began, sorted; those that began
// after the phase are none of its.
func (o Observation) starts(of func(probe.Sample) []probe.Sample) (all []int64) {
	for _, s := range o.Samples {
		for _, a := range of(s) {
			if a.StartNS < o.End {
				all = append(all, a.StartNS)
			}
		}
	}
	slices.Sort(all)
	return all
}

// burst is how attempts or retries cluster.
func (o Observation) burst(metric string, width time.Duration) (float64, error) {
	of := retries
	if metric == "attempts_peak" {
		of = func(s probe.Sample) []probe.Sample { return s.Tries() }
	}
	all := o.starts(of)
	if len(all) == 0 {
		if metric == "dispersion" {
			return 0, errors.New("no retry began in it")
		}
		return 0, nil
	}
	first, last := all[0], all[len(all)-1]
	switch metric {
	case "retries_mean":
		return float64(len(all)) * float64(width) / float64(last-first+int64(width)), nil
	case "dispersion":
		return dispersion(all, o.Begin, int64(width)), nil
	}
	return float64(peak(all, int64(width))), nil
}

// peak is the most of sorted times that lie within one width, wherever it begins.
func peak(all []int64, width int64) (most int) {
	from := 0
	for i, at := range all {
		for at-all[from] >= width {
			from++
		}
		most = max(most, i+1-from)
	}
	return most
}

// dispersion is the index of dispersion, the variance over the mean, of how many of sorted
// times lie in each bin from begin to the last one. It is 1 for what comes independently at a
// constant rate (D. R. Cox, P. A. W. Lewis, "The Statistical Analysis of Series of Events", 1966).
func dispersion(all []int64, begin, width int64) float64 {
	bins := (all[len(all)-1]-begin)/width + 1
	counts := map[int64]float64{}
	for _, at := range all {
		counts[(at-begin)/width]++
	}
	mean := float64(len(all)) / float64(bins)
	squares := 0.
	for _, n := range counts {
		squares += n * n
	}
	return (squares/float64(bins) - mean*mean) / mean
}

// delays are the pauses before the n-th retries: from an attempt's end to the next one's
// beginning. A hedge, which begins before that end, has none.
func (o Observations) delays(n string) (kpi.Value, error) {
	index, err := strconv.Atoi(n)
	if err != nil {
		return kpi.Value{}, err
	}
	var all []float64
	for _, x := range o {
		for _, s := range x.Samples {
			if index >= len(s.Attempts) {
				continue
			}
			if pause := s.Attempts[index].StartNS - s.Attempts[index-1].EndNS; pause >= 0 {
				all = append(all, float64(pause)/float64(time.Millisecond))
			}
		}
	}
	if len(all) == 0 {
		return kpi.Value{}, errors.New("no call had that retry")
	}
	return kpi.Several(all), nil
}

// outside counts the retries that no fault explains: they began before each fault, or later
// than one timeout and the longest pause after it.
func (o Observations) outside() (n int) {
	for _, x := range o {
		for _, s := range x.Samples {
			for _, a := range retries(s) {
				if !slices.ContainsFunc(x.Faults, func(f Span) bool { return f.Begin <= a.StartNS && a.StartNS <= f.End+int64(x.Grace) }) {
					n++
				}
			}
		}
	}
	return n
}
