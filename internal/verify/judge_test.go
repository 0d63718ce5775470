package verify

import (
	"testing"
	"time"

	"netemd/qdisc"
)

// seeds is how often each case is simulated: enough to see a judge that is wrong
// once in a hundred times.
const seeds = 300

const msec = time.Millisecond

func tally(n qdisc.Netem, packets int, change func(*sighting)) (map[Verdict]int, string) {
	found, example := map[Verdict]int{}, ""
	for seed := range uint64(seeds) {
		s := simulate(n, packets, seed)
		if change != nil {
			change(&s)
		}
		r := assess(s)
		found[r.Verdict]++
		if r.Verdict != Pass {
			example = r.Reason
		}
	}
	return found, example
}

// TestJudgeRight simulates what was asked: at least 99 % must pass.
func TestJudgeRight(t *testing.T) {
	for name, n := range map[string]qdisc.Netem{
		"loss 1":            {Loss: 1},
		"loss 20":           {Loss: 20},
		"loss 50":           {Loss: 50},
		"loss 100":          {Loss: 100},
		"correlated":        {Loss: 20, LossCorrelation: 25},
		"gilbert elliott":   {GilbertElliott: qdisc.GilbertElliott{P: 1, R: 10}},
		"gemodel of 4":      {GilbertElliott: qdisc.GilbertElliott{P: 2, R: 20, LossBad: 70, LossGood: .5}},
		"4 states":          {LossState: qdisc.LossState{P13: 2, P31: 10, P32: 20, P23: 40, P14: 1}},
		"ecn":               {Loss: 20, ECN: true},
		"delay":             {Delay: 50 * msec},
		"uniform":           {Delay: 50 * msec, Jitter: 20 * msec},
		"normal":            {Delay: 50 * msec, Jitter: 10 * msec, Distribution: qdisc.Normal},
		"pareto":            {Delay: 50 * msec, Jitter: 10 * msec, Distribution: qdisc.Pareto},
		"paretonormal":      {Delay: 50 * msec, Jitter: 10 * msec, Distribution: qdisc.ParetoNormal},
		"clamped":           {Delay: 20 * msec, Jitter: 20 * msec, Distribution: qdisc.Normal},
		"delay correlation": {Delay: 50 * msec, Jitter: 10 * msec, DelayCorrelation: 25},
		"reorder":           {Delay: 40 * msec, Reorder: 25},
		"reorder gap":       {Delay: 40 * msec, Reorder: 50, Gap: 5},
		"reorder corr":      {Delay: 40 * msec, Reorder: 25, ReorderCorrelation: 50},
		"duplicate":         {Duplicate: 2},
		"duplicate loss":    {Duplicate: 20, Loss: 20},
		"corrupt":           {Corrupt: 1},
		"all":               {Loss: 5, Duplicate: 5, Corrupt: 5, Delay: 30 * msec, Jitter: 5 * msec, Reorder: 10},
		"rate":              {Rate: 1_250_000},
		"rate slow":         {Rate: 125_000, Delay: 20 * msec},
		"rate cells":        {Rate: 1_250_000, PacketOverhead: 10, CellSize: 48, CellOverhead: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, example := map[Verdict]int{}, ""
			for seed := range uint64(seeds) {
				s := newSimulation(n, seed)
				s.ect = n.ECN
				r := assess(s.run(schedule(s.n, Options{}.Normalize(), s.size)))
				found[r.Verdict]++
				if r.Verdict != Pass {
					example = r.Reason
				}
			}
			t.Log(found, example)
			if found[Pass] < seeds*99/100 {
				t.Errorf("%v: %v, for example: %s", n, found, example)
			}
		})
	}
}
