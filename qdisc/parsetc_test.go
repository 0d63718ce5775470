package qdisc

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseTC(t *testing.T) {
	us := time.Microsecond
	for text, want := range map[string]Netem{
		"":                                   {},
		"delay 100ms 20ms loss 5%":           {Delay: 100 * ms, Jitter: 20 * ms, Loss: 5},
		"lat 100 drop 5 0.5":                 {Delay: 100 * us, Loss: 5, LossCorrelation: .5},
		"delay 1.5MS":                        {Delay: 1500 * us},
		"limit 10k":                          {Limit: 10240},
		"dup 1% di normal del 2s 1s":         {Delay: 2 * time.Second, Jitter: time.Second, Duplicate: 1, Distribution: Normal},
		"loss gemodel 1%":                    {GilbertElliott: GilbertElliott{P: 1, R: 99, LossBad: 100}},
		"loss gemodel 1 10 50 2 ecn":         {GilbertElliott: GilbertElliott{P: 1, R: 10, LossBad: 50, LossGood: 2}, ECN: true},
		"loss state 2%":                      {LossState: LossState{P13: 2, P31: 98, P23: 100}},
		"loss state 2% 20% 3%":               {LossState: LossState{P13: 2, P31: 20, P32: 3, P23: 100}},
		"rate 1mbps":                         {Rate: 1e6},
		"rate 8000":                          {Rate: 1000},
		"slot 0":                             {},
		"rate 0":                             {},
		"rate 10mbit -14 0x30 -017":          {Rate: 1250000, PacketOverhead: -14, CellSize: 48, CellOverhead: -15},
		"slot 5ms":                           {Slot: Slot{MinDelay: 5 * ms, MaxDelay: 5 * ms}},
		"slot 5ms 10ms p 3 b 1k":             {Slot: Slot{MinDelay: 5 * ms, MaxDelay: 10 * ms, Packets: 3, Bytes: 1024}},
		"slot distribution uniform 10ms 4ms": {Slot: Slot{MinDelay: 6 * ms, MaxDelay: 14 * ms}},
		"slot distribution pareto 10ms 14ms bytes 3kb loss 1% seed 9": {
			Slot: Slot{Distribution: Pareto, Delay: 10 * ms, Jitter: 14 * ms, Bytes: 3072}, Loss: 1, Seed: 9,
		},
		"gap 5 reorder 25% 50% delay 10ms": {Delay: 10 * ms, Reorder: 25, ReorderCorrelation: 50, Gap: 5},
	} {
		got, err := ParseTC(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

// Each error names the word, what was given, and what is allowed there.
func TestParseTCRefuses(t *testing.T) {
	for text, want := range map[string]struct{ field, value, want string }{
		"jitter 5ms":                        {"", "jitter", "limit, delay, distribution, loss"},
		"d 5ms":                             {"", "d", "limit, delay"},
		"delay":                             {"delay", "", "a time"},
		"delay 10 ms":                       {"", "ms", "limit, delay"},
		"delay 10min":                       {"delay", "10min", "a time"},
		"delay 2h":                          {"delay", "2h", "a time"},
		"delay 1e3ms":                       {"delay", "1e3ms", "a time"},
		"delay 10ms 5":                      {"", "", ""},
		"delay 1ms delay 2ms":               {"delay", "delay", "it once"},
		"loss 1% drop 1%":                   {"loss", "drop", "it once"},
		"loss":                              {"loss", "", "a percentage, random, state or gemodel"},
		"loss burst 1%":                     {"loss", "burst", "a percentage, random, state or gemodel"},
		"loss 120%":                         {"loss", "120%", "0% to 100%"},
		"loss random":                       {"loss", "", "0% to 100%"},
		"loss state 1% 200%":                {"loss state p31", "200%", "0% to 100%"},
		"loss gemodel 1% 10% 0%":            {"loss gemodel 1-h", "0%", "above 0%"},
		"loss gemodel 0%":                   {"loss.gemodel.p", "0%", "above 0%"},
		"limit 0":                           {"limit", "0", "1 packet or more"},
		"limit 5g":                          {"limit", "5g", "0 to 4294967295"},
		"limit -1":                          {"limit", "-1", "0 to 4294967295"},
		"distribution custom delay 2ms 1ms": {"distribution", "custom", "uniform, normal"},
		"distribution experimental":         {"distribution", "experimental", "uniform, normal"},
		"rate 50%":                          {"rate", "50%", "a rate"},
		"rate 7bit":                         {"rate", "7bit", "8bit"},
		"rate 1pbit":                        {"rate", "1pbit", "a rate"},
		"rate 101tbit":                      {"rate", "101tbit", "100tbit"},
		"rate 1mbit x":                      {"", "x", "limit"},
		"rate 1mbit 1_0":                    {"rate.packet_overhead", "1_0", "whole number"},
		"rate 1mbit 0b1":                    {"rate.packet_overhead", "0b1", "whole number"},
		"rate 1mbit -21":                    {"rate.packet_overhead", "-21", "-20 to"},
		"rate 1mbit 0 48 -49":               {"rate.cell_overhead", "-49", "-48 to"},
		"rate 1mbit 0 0 5":                  {"rate.cell_overhead", "5", "a cell size"},
		"slot":                              {"slot", "", "a time"},
		"slot dist normal 1ms 1ms":          {"slot", "dist", "a time"},
		"slot 2ms 1ms":                      {"slot.max_delay", "1ms", "from the least"},
		"slot 0 packets 5":                  {"slot.min_delay", "0s", "above 0s"},
		"slot 1ms packets -5":               {"slot.packets", "-5", "0 to 2147483647"},
		"slot 1ms bytes 3g":                 {"slot.bytes", "3GiB", "2147483647B"},
		"slot distribution normal 1ms 0ms":  {"slot.jitter", "0s", "above 0s"},
		"slot distribution uniform 1ms 2ms": {"slot.jitter", "2ms", "at most the delay"},
		"slot distribution normal 1ms":      {"slot.jitter", "", "a time"},
		"seed 0":                            {"seed", "0", "from 1"},
		"seed 18446744073709551616":         {"seed", "18446744073709551616", "from 1"},
		"ecn":                               {"ecn", "", "a loss"},
		"gap 5":                             {"reorder.gap", "5", "a reorder share"},
		"reorder 5%":                        {"reorder", "5%", "a delay"},
		"distribution normal delay 100ms":   {"delay.distribution", "normal", "a jitter"},
		"slot distribution custom 10ms 5ms": {"slot.distribution", "custom", "uniform, normal"},
		"delay 10ms 20ms":                   {"delay.jitter", "20ms", "at most the delay"},
	} {
		got, err := ParseTC(text)
		if want == (struct{ field, value, want string }{}) {
			if err != nil {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		var fe *FieldError
		if !errors.As(err, &fe) || fe.Field != want.field || fe.Value != want.value || !strings.Contains(fe.Want, want.want) {
			t.Errorf("%q was read as %v, %v, want an error of %q with %q and %q", text, got, err, want.field, want.value, want.want)
		}
	}
}

// random is any impairment that is valid and that tc's words can say.
func random(r *rand.Rand) Netem {
	percent := func() Percent {
		switch r.IntN(4) {
		case 0:
			return Percent(r.IntN(100) + 1)
		case 1:
			return PercentOf(r.Uint32() | 1)
		case 2:
			return PercentOf(r.Uint32()>>r.IntN(30) | 1)
		}
		return 100
	}
	duration := func(most time.Duration) time.Duration {
		return 1 + time.Duration(r.Int64N(max(1, int64(most)>>r.IntN(40))))
	}
	maybe := func(odds int, f func()) {
		if r.IntN(odds) == 0 {
			f()
		}
	}
	shapes := []Distribution{"", Uniform, Normal, Pareto, ParetoNormal}
	var n Netem
	maybe(2, func() {
		n.Delay = duration(MaxDelay)
		maybe(2, func() {
			n.Jitter = min(n.Delay, duration(MaxJitter))
			n.Distribution = shapes[r.IntN(len(shapes))]
			maybe(2, func() { n.DelayCorrelation = percent() })
		})
		maybe(2, func() {
			n.Reorder, n.Gap = percent(), r.Uint32()>>r.IntN(32)
			maybe(2, func() { n.ReorderCorrelation = percent() })
		})
	})
	switch r.IntN(4) {
	case 0:
		n.Loss = percent()
		maybe(2, func() { n.LossCorrelation = percent() })
	case 1:
		n.GilbertElliott = GilbertElliott{P: percent(), R: percent()}
		maybe(2, func() { n.GilbertElliott.LossBad = percent() })
		maybe(2, func() { n.GilbertElliott.LossGood = percent() })
	case 2:
		half := func() Percent { return PercentOf(percent().Fraction()>>1 | 1) }
		n.LossState = LossState{P13: half(), P31: half(), P32: half(), P23: percent(), P14: half()}
	}
	if n.Loss != 0 || n.GilbertElliott.P != 0 || n.LossState.P13 != 0 {
		n.ECN = r.IntN(2) == 0
	}
	maybe(3, func() { n.Duplicate, n.DuplicateCorrelation = percent(), percent() })
	maybe(3, func() { n.Corrupt, n.CorruptCorrelation = percent(), percent() })
	maybe(2, func() {
		n.Rate = 1 + Rate(r.Uint64N(uint64(MaxRate)>>r.IntN(43)))
		maybe(2, func() {
			n.PacketOverhead = int32(r.Uint32N(1<<31)>>r.IntN(31)) - 20
			maybe(2, func() {
				n.CellSize = 1 + r.Uint32N(1000)
				n.CellOverhead = r.Int32N(100) - min(int32(n.CellSize), 50)
				if n.PacketOverhead > 1e6 {
					n.CellOverhead = 0
				}
			})
		})
	})
	maybe(2, func() {
		n.Slot.MinDelay = duration(MaxDelay / 2)
		n.Slot.MaxDelay = n.Slot.MinDelay + duration(MaxJitter-1)
		maybe(3, func() {
			n.Slot = Slot{Distribution: shapes[2+r.IntN(3)], Delay: duration(MaxDelay), Jitter: duration(MaxJitter)}
		})
		n.Slot.Packets, n.Slot.Bytes = r.Uint32()>>(1+r.IntN(31)), Bytes(r.Uint32()>>(1+r.IntN(31)))
	})
	maybe(2, func() { n.Limit = 1 + r.Uint32()>>1 })
	maybe(3, func() { n.Seed = r.Uint64() | 1 })
	return n
}

// Whatever is valid is said in tc's words, and reads back from them and from its bytes
// as it was; and a change to it from any other ends what it lacks.
func TestRandomNetems(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	former := Netem{}
	for range 5_000 {
		n := random(r)
		if err := n.Validate(); err != nil {
			t.Fatalf("%+v: %v", n, err)
		}
		want := n.Normalize()
		if err := want.Validate(); err != nil {
			t.Fatalf("normalized %+v: %v", want, err)
		}
		back, err := ParseTC(n.TC())
		if err != nil || back.Normalize() != want {
			t.Fatalf("%s: %v\n%s", n.TC(), err, cmp.Diff(want, back.Normalize()))
		}
		b, err := n.MarshalOptions()
		if err != nil {
			t.Fatal(err)
		}
		fresh, err := UnmarshalOptions(b)
		if err != nil || fresh != want {
			t.Fatalf("%s: %v\n%s", n.TC(), err, cmp.Diff(want, fresh))
		}
		if merged, conflicts := n.Merge(Netem{}); merged != n || conflicts != nil {
			t.Fatalf("%s merged with nothing is %s, %q", n, merged, conflicts)
		}
		b, err = n.marshal(&former)
		if err != nil {
			t.Fatal(err)
		}
		if got := kernel(t, former, b); n.Differences(got) != nil {
			t.Fatalf("%s after %s: in force is %s, differences %q", n, former, got, n.Differences(got))
		}
		former = want
	}
}

// kernel is what is in force after a change, by netem_change of net/sched/sch_netem.c:
// attributes that are not there leave what was, but for the loss model and the times.
func kernel(t *testing.T, was Netem, b []byte) Netem {
	t.Helper()
	now, err := UnmarshalOptions(b)
	if err != nil {
		t.Fatal(err)
	}
	sent := map[uint16]bool{}
	if err := eachAttr(b[qoptSize:], func(attr uint16, _ []byte) error {
		sent[attr] = true
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !sent[attrCorr] {
		now.DelayCorrelation, now.LossCorrelation, now.DuplicateCorrelation = was.DelayCorrelation, was.LossCorrelation, was.DuplicateCorrelation
	}
	if !sent[attrReorder] {
		now.Reorder, now.ReorderCorrelation = was.Reorder, was.ReorderCorrelation
	}
	if !sent[attrCorrupt] {
		now.Corrupt, now.CorruptCorrelation = was.Corrupt, was.CorruptCorrelation
	}
	if !sent[attrECN] {
		now.ECN = was.ECN
	}
	if !sent[attrSlot] {
		now.Slot = was.Slot
	}
	if !sent[attrRate] {
		now.Rate, now.PacketOverhead, now.CellSize, now.CellOverhead = was.Rate, was.PacketOverhead, was.CellSize, was.CellOverhead
	}
	return now
}

func FuzzParseTC(f *testing.F) {
	for _, file := range []string{"tc.txt", "tc-newer.txt"} {
		for _, c := range fixtures(f, file) {
			f.Add(c.arguments)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseTC(text)
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v is no ErrInvalid", text, err)
			}
			return
		}
		if back, err := ParseTC(n.TC()); err != nil || back.Normalize() != n.Normalize() {
			t.Errorf("%q: %s reads back as %s, %v", text, n.TC(), back, err)
		}
		if _, err := n.MarshalOptions(); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if q := n.DelayQuantile(1); q < 0 || math.IsNaN(n.Delays().CDF(q)) {
			t.Errorf("%q: quantile %v", text, q)
		}
	})
}
