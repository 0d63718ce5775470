package qdisc

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatchApply(t *testing.T) {
	gemodel := GilbertElliott{P: 1, R: 10}
	state := LossState{P14: 1}
	random := Netem{Loss: 20, LossCorrelation: 25, ECN: true, Delay: 10 * ms}
	bursts := Netem{GilbertElliott: gemodel, ECN: true, Delay: 10 * ms}
	shaped := Netem{Delay: 10 * ms, Jitter: ms, Distribution: Custom, Samples: "12"}
	paced := Netem{Rate: 100, PacketOverhead: 1, CellSize: 2, CellOverhead: 3}
	for name, c := range map[string]struct {
		n    Netem
		p    Patch
		want Netem
	}{
		"nothing":            {random, Patch{}, random},
		"another share":      {random, Patch{Loss: new(Percent(5))}, Netem{Loss: 5, LossCorrelation: 25, ECN: true, Delay: 10 * ms}},
		"no loss":            {random, Patch{Loss: new(Percent(0))}, Netem{Delay: 10 * ms}},
		"no loss of a model": {bursts, Patch{Loss: new(Percent(0))}, Netem{Delay: 10 * ms}},
		"to a model":         {random, Patch{GilbertElliott: &gemodel}, bursts},
		"to a state model":   {bursts, Patch{LossState: &state}, Netem{LossState: state, ECN: true, Delay: 10 * ms}},
		"from a model":       {bursts, Patch{Loss: new(Percent(5))}, Netem{Loss: 5, ECN: true, Delay: 10 * ms}},
		"no ecn":             {bursts, Patch{ECN: new(false)}, Netem{GilbertElliott: gemodel, Delay: 10 * ms}},
		"no model":           {bursts, Patch{GilbertElliott: new(GilbertElliott{})}, Netem{Delay: 10 * ms}},
		"two models": {
			random, Patch{GilbertElliott: &gemodel, LossState: &state},
			Netem{GilbertElliott: gemodel, LossState: state, ECN: true, Delay: 10 * ms},
		},
		"other shape":     {shaped, Patch{Distribution: new(Normal)}, Netem{Delay: 10 * ms, Jitter: ms, Distribution: Normal}},
		"samples alone":   {Netem{Delay: 10 * ms, Jitter: ms}, Patch{Samples: new(Samples("12"))}, shaped},
		"shape, samples":  {Netem{}, Patch{Distribution: new(Normal), Samples: new(Samples("12"))}, Netem{Distribution: Normal, Samples: "12"}},
		"no rate":         {paced, Patch{Rate: new(Rate(0))}, Netem{}},
		"another rate":    {paced, Patch{Rate: new(Rate(7))}, Netem{Rate: 7, PacketOverhead: 1, CellSize: 2, CellOverhead: 3}},
		"slot whole":      {Netem{Slot: Slot{MinDelay: 5, Packets: 5}}, Patch{Slot: new(Slot{MinDelay: 7})}, Netem{Slot: Slot{MinDelay: 7}}},
		"limit and seed":  {Netem{}, Patch{Limit: new(uint32(1)), Seed: new(uint64(2))}, Netem{Limit: 1, Seed: 2}},
		"zero duplicates": {Netem{Duplicate: 5, Loss: 5}, Patch{Duplicate: new(Percent(0))}, Netem{Loss: 5}},
	} {
		if diff := cmp.Diff(c.want, c.p.Apply(c.n)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A patch that sets every field leaves nothing of what was, so that no field is
// forgotten in Patch, Apply, Merge and Normalize.
func TestEveryFieldIsPatchedAndMerged(t *testing.T) {
	patch, netem := reflect.TypeFor[Patch](), reflect.TypeFor[Netem]()
	for i := range netem.NumField() {
		f := netem.Field(i)
		in, ok := patch.FieldByName(f.Name)
		if !ok || in.Type != reflect.PointerTo(f.Type) {
			t.Errorf("Patch has no %s", f.Name)
			continue
		}
		var n Netem
		value := reflect.ValueOf(&n).Elem().Field(i)
		switch value.Kind() {
		case reflect.Struct:
			value.Field(0).Set(reflect.ValueOf(1).Convert(value.Field(0).Type()))
		case reflect.String:
			value.SetString("custom")
		case reflect.Bool:
			value.SetBool(true)
		default:
			value.Set(reflect.ValueOf(1).Convert(f.Type))
		}
		var p Patch
		pointer := reflect.New(f.Type)
		pointer.Elem().Set(value)
		reflect.ValueOf(&p).Elem().FieldByName(f.Name).Set(pointer)
		if got := p.Apply(Netem{}); reflect.ValueOf(got).Field(i).Interface() != value.Interface() {
			t.Errorf("%s is not patched", f.Name)
		}
		if got, _ := (Netem{}).Merge(n); got != n {
			t.Errorf("%s is not merged: %+v", f.Name, got)
		}
		impairs := f.Name != "ECN" && f.Name != "Limit" && f.Name != "Seed"
		if n.IsZero() == impairs {
			t.Errorf("%s alone: IsZero is %t", f.Name, n.IsZero())
		}
		drops := strings.HasPrefix(f.Name, "Loss") || f.Name == "GilbertElliott"
		if queues := n.Queues(); queues != (impairs && !drops || f.Name == "ECN") {
			t.Errorf("%s alone: Queues is %t", f.Name, queues)
		}
	}
}
