package verify

import (
	"os"
	"strings"
	"testing"
	"time"

	"netemd/qdisc"
)

const msec = time.Millisecond

// seeds is how often each case is simulated: in a long run often enough to see a judge
// that is wrong once in a hundred times.
func seeds() uint64 {
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		return 300
	}
	return 20
}

// outcomes are the verdicts on what is done instead of what is asked.
func outcomes(asked, done qdisc.Netem, packets int) (found map[Verdict]uint64, example string) {
	found = map[Verdict]uint64{}
	for seed := range seeds() {
		s := newSimulation(done, seed)
		s.capable = asked.ECN
		seen := s.run(schedule(asked.Normalize(), Options{Packets: packets}.Normalize(), s.size))
		seen.netem = asked
		r := assess(seen)
		found[r.Verdict]++
		if r.Verdict != Pass || example == "" {
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
		"slow uniform":      {Delay: 600 * msec, Jitter: 500 * msec},
		"delay correlation": {Delay: 50 * msec, Jitter: 10 * msec, DelayCorrelation: 25},
		"reorder":           {Delay: 40 * msec, Reorder: 25},
		"reorder gap":       {Delay: 40 * msec, Reorder: 50, Gap: 5},
		"reorder corr":      {Delay: 40 * msec, Reorder: 25, ReorderCorrelation: 50},
		"duplicate":         {Duplicate: 2},
		"duplicate loss":    {Duplicate: 20, Loss: 20},
		"corrupt":           {Corrupt: 1},
		"all":               {Loss: 5, Duplicate: 5, Corrupt: 5, Delay: 30 * msec, Jitter: 5 * msec, Reorder: 10},
		"rate":              {Rate: 1_250_000},
		"order":             {Rate: qdisc.OrderRate, Delay: 50 * msec, Jitter: 10 * msec},
		"rate slow":         {Rate: 125_000, Delay: 20 * msec},
		"rate of 80 kbit":   {Rate: 10_000},
		"rate and limit":    {Rate: 125_000, Limit: 10},
		"rate cells":        {Rate: 1_250_000, PacketOverhead: 10, CellSize: 48, CellOverhead: 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if found, example := outcomes(n, n, 0); found[Pass] < seeds()*99/100 {
				t.Errorf("%v: %v, for example: %s", n, found, example)
			}
		})
	}
}

// TestJudgeWrong simulates something else than what was asked.
func TestJudgeWrong(t *testing.T) {
	bursts := qdisc.GilbertElliott{P: 1, R: 10}
	for name, tt := range map[string]struct {
		asked, done qdisc.Netem
		packets     int
		check       string // that fails
	}{
		"nothing is lost":       {qdisc.Netem{Loss: 1}, qdisc.Netem{}, 2000, "loss_percent"},
		"a quarter more":        {qdisc.Netem{Loss: 20}, qdisc.Netem{Loss: 25}, 0, "loss_percent"},
		"a quarter less":        {qdisc.Netem{Loss: 20}, qdisc.Netem{Loss: 15}, 0, "loss_percent"},
		"not all":               {qdisc.Netem{Loss: 100}, qdisc.Netem{Loss: 99}, 2000, "loss_percent"},
		"unasked loss":          {qdisc.Netem{Delay: 50 * msec}, qdisc.Netem{Delay: 50 * msec, Loss: 1}, 2000, "loss_percent"},
		"no correlation":        {qdisc.Netem{Loss: 20, LossCorrelation: 25}, qdisc.Netem{Loss: 20}, 0, "loss_percent"},
		"correlation":           {qdisc.Netem{Loss: 20}, qdisc.Netem{Loss: 20, LossCorrelation: 25}, 0, "loss_percent"},
		"no bursts":             {qdisc.Netem{GilbertElliott: bursts}, qdisc.Netem{Loss: 9.09}, 0, "mean_burst_packets"},
		"longer bursts":         {qdisc.Netem{GilbertElliott: bursts}, qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: .3, R: 3}}, 0, "mean_burst_packets"},
		"bursts":                {qdisc.Netem{Loss: 9.09}, qdisc.Netem{GilbertElliott: bursts}, 0, "mean_burst_packets"},
		"dropped, not marked":   {qdisc.Netem{Loss: 20, ECN: true}, qdisc.Netem{Loss: 20}, 0, "ecn_mark_percent"},
		"earlier":               {qdisc.Netem{Delay: 50 * msec}, qdisc.Netem{Delay: 49 * msec}, 1000, "delay_min_ms"},
		"later":                 {qdisc.Netem{Delay: 50 * msec}, qdisc.Netem{Delay: 55 * msec}, 1000, "delay_p50_ms"},
		"no jitter":             {qdisc.Netem{Delay: 50 * msec, Jitter: 20 * msec}, qdisc.Netem{Delay: 50 * msec}, 1000, "jitter_p25_to_p75_ms"},
		"half the jitter":       {qdisc.Netem{Delay: 50 * msec, Jitter: 20 * msec}, qdisc.Netem{Delay: 50 * msec, Jitter: 10 * msec}, 1000, "delay_distance_percent"},
		"another distribution":  {qdisc.Netem{Delay: 50 * msec, Jitter: 20 * msec, Distribution: qdisc.Normal}, qdisc.Netem{Delay: 50 * msec, Jitter: 20 * msec}, 0, "delay_distance_percent"},
		"mirrored distribution": {qdisc.Netem{Delay: 99 * msec, Jitter: 20 * msec, Distribution: qdisc.Pareto}, qdisc.Netem{Delay: 99 * msec, Jitter: 20 * msec, Distribution: qdisc.Normal}, 0, "delay_distance_percent"},
		"less reordered":        {qdisc.Netem{Delay: 40 * msec, Reorder: 25}, qdisc.Netem{Delay: 40 * msec, Reorder: 20}, 0, "reorder_percent"},
		"every fifth":           {qdisc.Netem{Delay: 40 * msec, Reorder: 50}, qdisc.Netem{Delay: 40 * msec, Reorder: 50, Gap: 5}, 2000, "reorder_percent"},
		"no duplicates":         {qdisc.Netem{Duplicate: 2}, qdisc.Netem{}, 2000, "duplicate_percent"},
		"unasked duplicates":    {qdisc.Netem{Loss: 20}, qdisc.Netem{Loss: 20, Duplicate: 1}, 2000, "duplicate_percent"},
		"more damage":           {qdisc.Netem{Corrupt: 2}, qdisc.Netem{Corrupt: 3}, 0, "corrupt_percent"},
		"unasked damage":        {qdisc.Netem{Loss: 20}, qdisc.Netem{Loss: 20, Corrupt: 1}, 2000, "corrupt_percent"},
		"faster":                {qdisc.Netem{Rate: 1_250_000}, qdisc.Netem{Rate: 1_500_000}, 0, "rate_bit_per_second"},
		"order not kept":        {qdisc.Netem{Rate: qdisc.OrderRate, Delay: 50 * msec, Jitter: 10 * msec}, qdisc.Netem{Delay: 50 * msec, Jitter: 10 * msec}, 0, "out_of_order_packets"},
		"slower":                {qdisc.Netem{Rate: 1_250_000}, qdisc.Netem{Rate: 1_000_000}, 0, "rate_bit_per_second"},
		"overhead forgotten":    {qdisc.Netem{Rate: 1_250_000, PacketOverhead: 40}, qdisc.Netem{Rate: 1_250_000}, 0, "rate_bit_per_second"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found, example := outcomes(tt.asked, tt.done, tt.packets)
			if found[Fail] < seeds()*99/100 || !strings.Contains(example, tt.check+" asked") {
				t.Errorf("asked %v, done %v: %v, for example: %s", tt.asked, tt.done, found, example)
			}
		})
	}
}

// A verdict needs enough to judge by, and says how much that is.
func TestJudgeOpen(t *testing.T) {
	for name, tt := range map[string]struct {
		n       qdisc.Netem
		packets int
		change  func(*sighting)
		want    Verdict
		reason  string
	}{
		"rare":       {qdisc.Netem{Loss: .1}, 2000, nil, Inconclusive, "too few packets for a share this small: 10000 packets would do"},
		"very rare":  {qdisc.Netem{Loss: .0001}, 2000, nil, Inconclusive, "no number up to 1000000 would do"},
		"few bursts": {qdisc.Netem{GilbertElliott: qdisc.GilbertElliott{P: .1, R: 10}}, 2000, nil, Inconclusive, "too few bursts: 10101 packets would do"},
		"p99 of 100": {qdisc.Netem{Delay: 50 * msec, Jitter: 10 * msec}, 200, nil, Inconclusive, "delay_p99_ms: too few packets to bound this quantile"},
		"overflow": {qdisc.Netem{Delay: 50 * msec, Limit: 20}, 2000, nil, Fail,
			"overflow: a full queue dropped"},
		"overflow unknown": {qdisc.Netem{Loss: 5, Delay: 50 * msec, Limit: 20}, 2000, func(s *sighting) {
			s.missing, s.full = []string{"overflow"}, true
		}, Fail, "overflow: the queue was full"},
		"overflow of others": {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.counters.Overflow = 7 }, Fail, "overflow: a full queue dropped 7 packets"},
		"late": {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.counters.Late, s.arrivals = 400, s.arrivals[400:] }, Inconclusive,
			"the engine stood still (this machine is too busy, or the agent was stopped), and threw 400 packets away late"},
		"refused":      {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.counters.Refused = 3 }, Inconclusive, "the device refused 3 packets"},
		"missed":       {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.missed = 3 }, Inconclusive, "the capture had no room for 3 frames"},
		"changed":      {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.changed = true }, Inconclusive, "the fault was changed, or ended"},
		"stepped":      {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.stepped = true }, Inconclusive, "clock was set"},
		"passed by":    {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) { s.counters.Seen = 12; s.arrivals = nil }, Inconclusive, "only 12 of 2000 packets passed the place"},
		"nothing came": {qdisc.Netem{Delay: 5 * msec}, 2000, func(s *sighting) { s.arrivals = nil }, Fail, "loss_percent asked 0 measured 100"},
		"open": {qdisc.Netem{Loss: 20}, 2000, func(s *sighting) {
			s.counters.Opened = 500
			for i := range 500 {
				s.arrivals = append(s.arrivals, arrival{number: i, at: s.sent[i]})
			}
		}, Inconclusive, "500 packets passed unimpaired because the netem engine was kept waiting"},
		"slow machine": {qdisc.Netem{Delay: 50 * msec}, 2000, func(s *sighting) {
			for i := range s.arrivals {
				s.arrivals[i].at += 12 * msec
			}
			for i := range s.late {
				s.late[i] = 5 * msec
			}
		}, Inconclusive, "this machine was late itself"},
		"no counters": {qdisc.Netem{Loss: 20}, 2000, func(s *sighting) { s.counters = nil }, Pass, "2 checks hold"},
		"all lost":    {qdisc.Netem{Loss: 100}, 2000, nil, Pass, "1 check holds"},
		"all lost, or never there": {qdisc.Netem{Loss: 100}, 2000, func(s *sighting) { s.counters = nil }, Inconclusive,
			"it is not known whether they got to it"},
		"half the rate": {qdisc.Netem{Rate: 125_000}, 2000, func(s *sighting) {
			for i := range s.arrivals {
				s.arrivals[i].at *= 2
			}
		}, Fail, "rate_bit_per_second asked"},
		"half the rate for others": {qdisc.Netem{Rate: 125_000}, 2000, func(s *sighting) {
			for i := range s.arrivals {
				s.arrivals[i].at *= 2
			}
			s.counters.Seen *= 2
		}, Inconclusive, "packets of others passed meanwhile"},
		"loss beside others": {qdisc.Netem{Loss: 5}, 2000, func(s *sighting) {
			s.arrivals, s.counters.Seen = s.arrivals[:1000], 2*s.counters.Seen
		}, Fail, "loss_percent asked 5"},
		"slots": {qdisc.Netem{Slot: qdisc.Slot{MinDelay: msec}}, 2000, nil, Inconclusive, "nothing that is judged"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSimulation(tt.n, 1)
			seen := s.run(schedule(s.n, Options{Packets: tt.packets}.Normalize(), s.size))
			if tt.change != nil {
				tt.change(&seen)
			}
			r := assess(seen)
			if r.Verdict != tt.want || !strings.Contains(r.Reason, tt.reason) {
				t.Errorf("%s: %s, want %s: %s", r.Verdict, r.Reason, tt.want, tt.reason)
			}
			if overflow := strings.Contains(tt.reason, "overflow"); overflow {
				for _, c := range r.Checks {
					if c.Name == "loss_percent" && c.Verdict != Inconclusive {
						t.Errorf("the loss is judged in spite of the overflow: %s", sentence(c))
					}
				}
			}
		})
	}
}
