package experiment

import (
	"testing"

	"netemd/internal/fault"
	"netemd/internal/kpi"
)

// TestOutages counts those that were made, and the services that were down together.
func TestOutages(t *testing.T) {
	strike := func(down, ready int64) fault.StrikeRecord {
		return fault.StrikeRecord{Down: fault.Instant{Monotonic: down}, Ready: fault.Instant{Monotonic: ready}}
	}
	one := []fault.StrikeRecord{strike(10, 20), strike(20, 30), {Skipped: "not back yet"}, strike(40, 0)}
	for name, test := range map[string]struct {
		strikes     []fault.StrikeRecord
		count, most float64
	}{
		"none":               {nil, 0, 0},
		"one after another":  {one, 3, 1},
		"one beside another": {append(one, strike(25, 45)), 4, 2},
		"one that stays":     {append(one, strike(50, 0)), 4, 2},
	} {
		o := Observations{{Phase: kpi.Fault, Repeat: 1, Outages: test.strikes}}
		for metric, want := range map[string]float64{"outages": test.count, "outages_at_once": test.most} {
			if v, err := o.outages(kpi.Ref{Metric: metric}); err != nil || v.Number != want {
				t.Errorf("%s: %s is %v, want %v: %v", name, metric, v.Number, want, err)
			}
		}
	}
}
