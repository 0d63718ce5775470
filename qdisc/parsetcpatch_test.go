package qdisc

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A text that changes an impairment is judged with what it changes.
func TestParseTCPatch(t *testing.T) {
	base := Netem{Delay: 100 * time.Millisecond, Jitter: 20 * time.Millisecond, Loss: 5, LossCorrelation: 25}
	changed := func(change func(*Netem)) Netem {
		n := base
		change(&n)
		return n
	}
	for text, want := range map[string]Netem{
		"reorder 25%": changed(func(n *Netem) { n.Reorder = 25 }),
		"dist normal": changed(func(n *Netem) { n.Distribution = Normal }),
		"ecn":         changed(func(n *Netem) { n.ECN = true }),
		"loss 7%":     changed(func(n *Netem) { n.Loss, n.LossCorrelation = 7, 0 }),
		"drop gemodel 1% 10%": changed(func(n *Netem) {
			n.Loss, n.LossCorrelation, n.GilbertElliott = 0, 0, GilbertElliott{P: 1, R: 10, LossBad: 100}
		}),
		"latency 50ms": changed(func(n *Netem) { n.Delay, n.Jitter = 50*time.Millisecond, 0 }),
		"delay 50ms 9ms dist pareto limit 9 seed 4": changed(func(n *Netem) {
			n.Delay, n.Jitter, n.Distribution, n.Limit, n.Seed = 50*time.Millisecond, 9*time.Millisecond, Pareto, 9, 4
		}),
		"dup 1% corrupt 2% rate 1mbit slot 1ms reorder 3% gap 4": changed(func(n *Netem) {
			n.Duplicate, n.Corrupt, n.Rate, n.Slot, n.Reorder, n.Gap = 1, 2, 125_000, Slot{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}, 3, 4
		}),
	} {
		p, err := ParseTCPatch(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got := p.Apply(base)
		if diff := cmp.Diff(want, got); diff != "" || got.Validate() != nil {
			t.Errorf("%q: %v (-want +got):\n%s", text, got.Validate(), diff)
		}
	}
	p, err := ParseTCPatch("reorder 25%")
	if err != nil || !errors.Is(p.Apply(Netem{Loss: 5}).Validate(), ErrInvalid) {
		t.Errorf("reorder without a delay: %v, want it invalid after Apply", err)
	}
	for _, text := range []string{"reorder", "loss 5% loss 6%", "limit 0", "dlay 1ms"} {
		if p, err := ParseTCPatch(text); !errors.Is(err, ErrInvalid) || p != (Patch{}) {
			t.Errorf("%q: %+v, %v, want invalid", text, p, err)
		}
	}
}
