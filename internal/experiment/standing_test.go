package experiment

import (
	"testing"

	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/qdisc"
)

// TestSeeded: all that is drawn follows from the seed, and the plan's own spec stays as it is.
func TestSeeded(t *testing.T) {
	by := func(own uint64) uint64 { return own + 100 }
	share := fault.Toxic{Kind: fault.ResetPeer, Toxicity: 30}
	for name, c := range map[string]struct {
		spec fault.Spec
		lab  bool
		seed func(fault.Spec) uint64
		want uint64
	}{
		"packet":  {fault.Spec{Packet: &qdisc.Netem{Loss: 1, Seed: 1}}, true, func(s fault.Spec) uint64 { return s.Packet.Seed }, 101},
		"request": {fault.Spec{Request: &fault.Request{Error: 20}}, true, func(s fault.Spec) uint64 { return s.Request.Seed }, 100},
		"outage":  {fault.Spec{Outage: &fault.Outage{Seed: 5}}, true, func(s fault.Spec) uint64 { return s.Outage.Seed }, 105},
		"toxic":   {fault.Spec{Toxics: []fault.Toxic{share}}, true, func(s fault.Spec) uint64 { return s.Toxics[0].Seed }, fault.Seed(100, 0)},
		"toxic that draws nothing": {
			fault.Spec{Toxics: []fault.Toxic{{Kind: fault.Down}}}, true, func(s fault.Spec) uint64 { return s.Toxics[0].Seed }, 0,
		},
		"toxic of no lab": {fault.Spec{Toxics: []fault.Toxic{share}}, false, func(s fault.Spec) uint64 { return s.Toxics[0].Seed }, 0},
	} {
		before := c.seed(c.spec)
		if got := c.seed(seeded(c.spec, c.lab, by)); got != c.want {
			t.Errorf("%s: seed %d, want %d", name, got, c.want)
		}
		if after := c.seed(c.spec); after != before {
			t.Errorf("%s: the plan's own seed is %d, was %d", name, after, before)
		}
	}
}

// TestUnmet: a fault that met nothing makes its phase count for nothing, of each kind.
func TestUnmet(t *testing.T) {
	for name, f := range map[string]struct{ none, some fault.Fault }{
		"packet": {
			fault.Fault{Spec: fault.Spec{Packet: &qdisc.Netem{}}}, fault.Fault{Spec: fault.Spec{Packet: &qdisc.Netem{}}, Counters: fault.Counters{Seen: 1}},
		},
		"rule": {
			fault.Fault{Spec: fault.Spec{Content: &content.Rule{}}, Counters: fault.Counters{Seen: 9}},
			fault.Fault{Spec: fault.Spec{Content: &content.Rule{}}, Counters: fault.Counters{Seen: 9, Lost: 1}},
		},
		"request": {
			fault.Fault{Spec: fault.Spec{Request: &fault.Request{}}}, fault.Fault{Spec: fault.Spec{Request: &fault.Request{}}, Counters: fault.Counters{Seen: 1}},
		},
		"outage": {
			fault.Fault{Spec: fault.Spec{Outage: &fault.Outage{}}, Outages: &fault.OutageRun{Skipped: 1}},
			fault.Fault{Spec: fault.Spec{Outage: &fault.Outage{}}, Outages: &fault.OutageRun{Done: 1}},
		},
		"service that is not back": {
			fault.Fault{Spec: fault.Spec{Outage: &fault.Outage{}}, Outages: &fault.OutageRun{Done: 2, Failed: 1}}, fault.Fault{},
		},
	} {
		if unmet(f.none) == "" {
			t.Errorf("%s: it met nothing, and that is not said", name)
		}
		if why := unmet(f.some); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
}
