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

const ms = time.Millisecond

func TestValidate(t *testing.T) {
	valid := []Netem{
		{},
		{Loss: 100},
		{Loss: .01, LossCorrelation: 25},
		{Delay: 100 * ms, Jitter: 100 * ms, DelayCorrelation: 25, Distribution: Normal},
		{Delay: MaxDelay, Jitter: MaxJitter},
		{Delay: 10 * ms, Reorder: 25, ReorderCorrelation: 50, Gap: 5},
		{Duplicate: 1, DuplicateCorrelation: 1, Corrupt: 1, CorruptCorrelation: 1},
		{Limit: 1, Seed: 1},
		{Delay: ms, Jitter: ms, Distribution: Custom, Samples: "12"},
		{LossState: LossState{P13: 1, P31: 99, P23: 100}, ECN: true},
		{LossState: LossState{P14: 5}},
		{LossState: LossState{P13: 50, P14: 50, P31: 50, P32: 50}},
		{GilbertElliott: GilbertElliott{P: 1}, ECN: true},
		{GilbertElliott: GilbertElliott{P: 100, R: 100, LossBad: 100, LossGood: 100}},
		{Rate: 1, PacketOverhead: -20},
		{Rate: MaxRate, PacketOverhead: math.MaxInt32},
		{Rate: 1, CellSize: 48, CellOverhead: -48},
		{Rate: 1, CellSize: math.MaxUint32},
		{Slot: Slot{MaxDelay: MaxJitter}},
		{Slot: Slot{MinDelay: MaxDelay - MaxJitter, MaxDelay: MaxDelay, Packets: math.MaxInt32, Bytes: math.MaxInt32}},
		{Slot: Slot{Distribution: Normal, Jitter: 1}},
	}
	for _, n := range valid {
		if err := n.Validate(); err != nil {
			t.Errorf("%v: %v", n, err)
		}
	}
	invalid := map[string]struct {
		n      Netem
		fields []string
	}{
		"shares":        {Netem{Loss: 120, Duplicate: -1, Corrupt: Percent(math.NaN()), Delay: ms, Reorder: Percent(math.Inf(1))}, []string{"loss", "duplicate", "reorder", "corrupt"}},
		"too small":     {Netem{Loss: 1e-9}, []string{"loss"}},
		"correlations":  {Netem{DelayCorrelation: 1, LossCorrelation: 1, DuplicateCorrelation: 1, ReorderCorrelation: 1, CorruptCorrelation: 1}, []string{"delay.correlation", "loss.correlation", "duplicate.correlation", "reorder.correlation", "corrupt.correlation"}},
		"correlation":   {Netem{Loss: 1, LossCorrelation: 101}, []string{"loss.correlation"}},
		"negative":      {Netem{Delay: -1, Jitter: -1}, []string{"delay", "delay.jitter"}},
		"long":          {Netem{Delay: MaxDelay + 1}, []string{"delay"}},
		"long jitter":   {Netem{Delay: time.Minute, Jitter: MaxJitter + 1}, []string{"delay.jitter"}},
		"jitter alone":  {Netem{Jitter: ms}, []string{"delay.jitter"}},
		"jitter large":  {Netem{Delay: ms, Jitter: 2 * ms}, []string{"delay.jitter"}},
		"no such shape": {Netem{Delay: ms, Jitter: ms, Distribution: "gauss"}, []string{"delay.distribution"}},
		"shape alone":   {Netem{Delay: ms, Distribution: Normal}, []string{"delay.distribution"}},
		"reorder alone": {Netem{Reorder: 25}, []string{"reorder"}},
		"gap alone":     {Netem{Delay: ms, Gap: 5}, []string{"reorder.gap"}},
		"no samples":    {Netem{Delay: ms, Jitter: ms, Distribution: Custom}, []string{"delay.samples"}},
		"odd samples":   {Netem{Delay: ms, Jitter: ms, Distribution: Custom, Samples: "123"}, []string{"delay.samples"}},
		"samples alone": {Netem{Delay: ms, Jitter: ms, Distribution: Normal, Samples: "12"}, []string{"delay.samples"}},
		"two losses":    {Netem{Loss: 1, LossState: LossState{P14: 1}, GilbertElliott: GilbertElliott{P: 1}}, []string{"loss.state"}},
		"correlated":    {Netem{LossCorrelation: 1, GilbertElliott: GilbertElliott{P: 1}}, []string{"loss.gemodel", "loss.correlation"}},
		"state shares": {
			Netem{LossState: LossState{P13: 101, P31: -1, P32: 1e-9, P23: Percent(math.NaN()), P14: Percent(math.Inf(1))}},
			[]string{"loss.state.p13", "loss.state.p31", "loss.state.p32", "loss.state.p23", "loss.state.p14", "loss.state.p14"},
		},
		"state loses nothing": {Netem{LossState: LossState{P31: 1, P23: 1}}, []string{"loss.state.p13"}},
		"state over 100":      {Netem{LossState: LossState{P13: 60, P14: 41, P31: 50, P32: 51}}, []string{"loss.state.p14", "loss.state.p32"}},
		"gemodel shares": {
			Netem{GilbertElliott: GilbertElliott{P: 101, R: -1, LossBad: 200, LossGood: 1e-9}},
			[]string{"loss.gemodel.p", "loss.gemodel.r", "loss.gemodel.loss_bad", "loss.gemodel.loss_good"},
		},
		"gemodel never bad": {Netem{GilbertElliott: GilbertElliott{R: 10}}, []string{"loss.gemodel.p"}},
		"ecn alone":         {Netem{Delay: ms, ECN: true}, []string{"ecn"}},
		"rate too fast":     {Netem{Rate: MaxRate + 1}, []string{"rate"}},
		"overheads alone":   {Netem{PacketOverhead: 1, CellSize: 1, CellOverhead: 1}, []string{"rate.packet_overhead", "rate.cell_size"}},
		"overhead alone":    {Netem{CellOverhead: 1}, []string{"rate.cell_overhead"}},
		"packet vanishes":   {Netem{Rate: 1, PacketOverhead: -21}, []string{"rate.packet_overhead"}},
		"cell vanishes":     {Netem{Rate: 1, CellSize: 48, CellOverhead: -49}, []string{"rate.cell_overhead"}},
		"cells overflow":    {Netem{Rate: 1, CellSize: 1, CellOverhead: 1 << 16}, []string{"rate.cell_overhead"}},
		"cells overflow at all": {
			Netem{Rate: 1, PacketOverhead: math.MaxInt32, CellSize: 1<<31 + 1, CellOverhead: 0}, []string{"rate.cell_size"},
		},
		"slot without times":  {Netem{Slot: Slot{Packets: 5}}, []string{"slot.min_delay"}},
		"slot backwards":      {Netem{Slot: Slot{MinDelay: 2 * ms, MaxDelay: ms}}, []string{"slot.max_delay"}},
		"slot too wide":       {Netem{Slot: Slot{MinDelay: ms, MaxDelay: ms + MaxJitter + 1}}, []string{"slot.max_delay"}},
		"slot too long":       {Netem{Slot: Slot{MinDelay: MaxDelay + 1}}, []string{"slot.min_delay"}},
		"slot bounds":         {Netem{Slot: Slot{MinDelay: 1, Packets: 1 << 31, Bytes: 1 << 31}}, []string{"slot.packets", "slot.bytes"}},
		"slot shape":          {Netem{Slot: Slot{Distribution: "gauss", Jitter: 1}}, []string{"slot.distribution"}},
		"slot uniform":        {Netem{Slot: Slot{Distribution: Uniform, Jitter: 1}}, []string{"slot.distribution"}},
		"slot both":           {Netem{Slot: Slot{Distribution: Normal, Jitter: 1, MinDelay: 1}}, []string{"slot.min_delay"}},
		"slot without jitter": {Netem{Slot: Slot{Distribution: Normal, Delay: ms}}, []string{"slot.jitter"}},
		"slot without shape":  {Netem{Slot: Slot{Delay: ms, Jitter: ms}}, []string{"slot.distribution"}},
		"slot samples":        {Netem{Slot: Slot{Distribution: Custom, Jitter: ms}}, []string{"slot.samples"}},
	}
	for name, c := range invalid {
		err := c.n.Validate()
		var got []string
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				var fe *FieldError
				if !errors.As(e, &fe) || fe.Want == "" {
					t.Fatalf("%s: %T %v", name, e, e)
				}
				got = append(got, fe.Field)
			}
		}
		if diff := cmp.Diff(c.fields, got); diff != "" {
			t.Errorf("%s: refused fields (-want +got):\n%s", name, diff)
		}
		if _, encodeErr := c.n.MarshalOptions(); encodeErr == nil || encodeErr.Error() != err.Error() {
			t.Errorf("%s: MarshalOptions: %v, want the error of Validate", name, encodeErr)
		}
	}
}

func TestPatchValidate(t *testing.T) {
	var zero, one uint32 = 0, 1
	err := Patch{Limit: &zero}.Validate()
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `limit "0": want 1 packet or more`) {
		t.Errorf("limit 0: %v", err)
	}
	if err := (Patch{Limit: &one}).Validate(); err != nil {
		t.Errorf("limit 1: %v", err)
	}
	if err := (Patch{}).Validate(); err != nil {
		t.Errorf("no limit: %v", err)
	}
}

func TestText(t *testing.T) {
	for _, c := range []struct {
		n        Netem
		text, tc string
	}{
		{Netem{}, "none", "limit 100000"},
		{Netem{Loss: 20, Delay: 100 * ms, Jitter: 20 * ms}, "loss 20% delay 100ms 20ms", "limit 100000 delay 100ms 20ms loss 20%"},
		{
			Netem{Loss: 20, Delay: 100 * ms, Jitter: 20 * ms, DelayCorrelation: 25},
			"loss 20% delay 100ms 20ms 25%", "limit 100000 delay 100ms 20ms 25% loss 20%",
		},
		{
			Netem{Delay: 90 * time.Second, Jitter: 1500 * time.Microsecond, Distribution: Pareto, Limit: 5, Seed: 42},
			"delay 1m30s 1.5ms distribution pareto limit 5 seed 42", "limit 5 delay 90s 1500us distribution pareto seed 42",
		},
		{Netem{Delay: 20 * time.Microsecond, Reorder: 25, Gap: 5}, "delay 20us reorder 25% gap 5", "limit 100000 delay 20us reorder 25% gap 5"},
		{Netem{Delay: 7, Reorder: 25}, "delay 7ns reorder 25%", "limit 100000 delay 7ns reorder 25%"},
		{
			Netem{Duplicate: .01, DuplicateCorrelation: 5, Corrupt: .1, CorruptCorrelation: 1},
			"duplicate 0.01% 5% corrupt 0.1% 1%", "limit 100000 duplicate 0.01% 5% corrupt 0.1% 1%",
		},
		{Netem{Loss: 1, ECN: true}, "loss 1% ecn", "limit 100000 loss 1% ecn"},
		{
			Netem{LossState: LossState{P13: 1, P31: 10, P23: 50}, Rate: 1250000, Delay: 100 * ms},
			"loss state 1% 10% 0% 50% 0% delay 100ms rate 10mbit", "limit 909 delay 100ms loss state 1% 10% 0% 50% 0% rate 10mbit",
		},
		{
			Netem{GilbertElliott: GilbertElliott{P: 1, R: 10}, Rate: 125000, CellSize: 48},
			"loss gemodel 1% 10% rate 1mbit 0 48", "limit 83 loss gemodel 1% 10% rate 1mbit 0 48",
		},
		{
			Netem{GilbertElliott: GilbertElliott{P: 1, R: 10, LossBad: 90}, Rate: OrderRate, PacketOverhead: -14, CellSize: 53, CellOverhead: 5},
			"loss gemodel 1% 10% 90% rate 100tbit -14 53 5", "limit 100000 loss gemodel 1% 10% 90% rate 100tbit -14 53 5",
		},
		{
			Netem{GilbertElliott: GilbertElliott{P: 1, R: 10, LossGood: 2}, Slot: Slot{MinDelay: 10 * ms}},
			"loss gemodel 1% 10% 100% 2% slot 10ms", "limit 100000 loss gemodel 1% 10% 100% 2% slot 10ms",
		},
		{
			Netem{Slot: Slot{MaxDelay: time.Minute, Packets: 5, Bytes: 3000}},
			"slot 0s 1m packets 5 bytes 3kB", "limit 100000 slot 0ms 60s packets 5 bytes 3000",
		},
		{
			Netem{Slot: Slot{Distribution: Pareto, Delay: 10 * ms, Jitter: 5 * ms}},
			"slot distribution pareto 10ms 5ms", "limit 100000 slot distribution pareto 10ms 5ms",
		},
	} {
		if got := c.n.String(); got != c.text {
			t.Errorf("String: %q, want %q", got, c.text)
		}
		if got := c.n.TC(); got != c.tc {
			t.Errorf("TC: %q, want %q", got, c.tc)
		}
	}
}

func TestMerge(t *testing.T) {
	delay := Netem{Delay: 50 * ms, Jitter: 5 * ms, Distribution: Custom, Samples: "12"}
	loss := Netem{Loss: 20, LossCorrelation: 25, ECN: true, Seed: 1}
	rate := Netem{Rate: 5, PacketOverhead: 1, CellSize: 2, CellOverhead: 3, Slot: Slot{MinDelay: ms}}
	all := Netem{
		Delay: ms, Jitter: ms, Loss: 1, Duplicate: 2, Reorder: 3, Gap: 4, Corrupt: 5, Rate: 8, Slot: Slot{MinDelay: 9}, Limit: 6, Seed: 7,
	}
	want := Netem{
		Delay: 50 * ms, Jitter: 5 * ms, Distribution: Custom, Samples: "12", Loss: 20, LossCorrelation: 25, ECN: true, Seed: 1,
	}
	for _, pair := range [][2]Netem{{delay, loss}, {loss, delay}, {want, {}}, {{}, want}} {
		got, conflicts := pair[0].Merge(pair[1])
		if got != want || conflicts != nil {
			t.Errorf("%v and %v: %v, conflicts %v", pair[0], pair[1], got, conflicts)
		}
	}
	if got, conflicts := rate.Merge(Netem{Loss: 1}); conflicts != nil || got.Loss != 1 || got.CellOverhead != 3 || got.Slot.MinDelay != ms {
		t.Errorf("rate and loss: %v, conflicts %v", got, conflicts)
	}
	got, conflicts := all.Merge(all)
	if diff := cmp.Diff([]string{"delay", "loss", "duplicate", "reorder", "corrupt", "rate", "slot", "limit", "seed"}, conflicts); diff != "" || got != all {
		t.Errorf("conflicts (-want +got):\n%s", diff)
	}
	if got, conflicts := all.Merge(Netem{}); got != all || conflicts != nil {
		t.Errorf("with nothing: %v, conflicts %v", got, conflicts)
	}
	for name, pair := range map[string][2]Netem{
		"delay": {delay, {Delay: 50 * ms, Loss: 1}},
		"loss":  {loss, {GilbertElliott: GilbertElliott{P: 1}}},
		"rate":  {rate, {Rate: 5}},
		"slot":  {rate, {Slot: Slot{MinDelay: 5}}},
	} {
		if got, conflicts := pair[0].Merge(pair[1]); !cmp.Equal(conflicts, []string{name}) || got != pair[0] {
			t.Errorf("two of %s: %v, conflicts %v", name, got, conflicts)
		}
	}
}

func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		n    Netem
		want []string // the beginning of each
	}{
		{Netem{}, nil},
		{Netem{Loss: 20, Delay: 100 * ms}, nil},
		{Netem{Loss: 100}, []string{"loss 100% is a partition"}},
		{Netem{Loss: 20, LossCorrelation: 25}, []string{"loss 20% with correlation 25% hits about 10% of the packets"}},
		{Netem{Loss: 1, LossCorrelation: 25}, []string{"loss 1% with correlation 25% hits about 0.0"}},
		{Netem{Loss: 20, LossCorrelation: 100}, []string{"loss with correlation 100% repeats its first draw"}},
		{Netem{Corrupt: 1}, []string{"corrupt flips one bit"}},
		{Netem{Delay: 50 * ms, Jitter: 10 * ms}, []string{"jitter 10ms lets packets overtake each other above about 100 packets per second"}},
		{
			Netem{Delay: 50 * ms, Jitter: 10 * ms, DelayCorrelation: 25},
			[]string{"jitter 10ms", "delay correlation 25% has hardly an effect"},
		},
		{
			Netem{Delay: 2 * time.Second, Jitter: 2 * time.Second, DelayCorrelation: 90, Limit: 1e6},
			[]string{"jitter 2s"},
		},
		{
			Netem{GilbertElliott: GilbertElliott{P: 1, R: 10}, ECN: true},
			[]string{"loss gemodel loses about 9.1% of the packets on average, in bursts of 10 packets", "ecn marks only packets whose sender offers ECN"},
		},
		{Netem{GilbertElliott: GilbertElliott{P: 1}}, []string{"loss gemodel loses every packet in the end"}},
		{Netem{LossState: LossState{P13: 1, P32: 5}}, []string{"loss state loses no packet in the end"}},
		{Netem{LossState: LossState{P13: 1, P31: 50, P23: 100}}, []string{"loss state loses about 2% of the packets on average, in bursts of 2 packets"}},
		{Netem{Rate: 125000}, []string{"rate 1mbit with limit 83: a full queue holds packets of 1514 bytes for 1.005s"}},
		{Netem{Rate: OrderRate, Delay: 50 * ms, Jitter: 10 * ms}, []string{"with a rate no packet overtakes another"}},
		{Netem{Slot: Slot{MinDelay: 10 * ms, MaxDelay: 20 * ms}}, []string{"slot holds packets until the next slot, up to 20ms after the one before, in addition"}},
		{Netem{Slot: Slot{Distribution: Normal, Delay: 10 * ms, Jitter: 5 * ms, Packets: 1}}, []string{"slot holds packets until the next slot, 10ms with jitter 5ms (normal) after the one before, or a later one when it is full"}},
		{Netem{Delay: 100 * ms, Limit: 1000}, []string{"limit 1000 with delay 100ms holds 10000 packets per second"}},
	} {
		got := c.n.Warnings()
		ok := len(got) == len(c.want)
		for i := 0; ok && i < len(got); i++ {
			ok = strings.HasPrefix(got[i], c.want[i])
		}
		if !ok {
			t.Errorf("%v: warnings %q, want %q", c.n, got, c.want)
		}
	}
}

// crandom is get_crandom of net/sched/sch_netem.c, word for word.
type crandom struct {
	rho, last uint32
	random    *rand.Rand
}

func (c *crandom) next() uint32 {
	value := uint64(c.random.Uint32())
	rho := uint64(c.rho) + 1
	c.last = uint32((value*(1<<32-rho) + uint64(c.last)*rho) >> 32)
	return c.last
}

// The computed share is the one that the kernel's integer recurrence gives. The
// bound is 5 standard deviations of a mean of correlated draws: the binomial one
// widened by (1+rho)/(1-rho), which bounds the sum of their autocorrelations.
func TestCorrelatedShare(t *testing.T) {
	const draws = 400_000
	for _, c := range []struct{ p, correlation Percent }{
		{20, 25}, {1, 25}, {5, 10}, {20, 1}, {50, 50}, {80, 25}, {10, 75}, {30, 90}, {45, 99}, {20, 99},
	} {
		state := crandom{rho: c.correlation.Fraction(), random: rand.New(rand.NewPCG(1, uint64(c.p*1000)))}
		state.last = state.random.Uint32()
		for range 10_000 { // forget the uniform start
			state.next()
		}
		hit := 0
		for range draws {
			if c.p.Fraction() >= state.next() {
				hit++
			}
		}
		got, want := float64(CorrelatedShare(c.p, c.correlation))/100, float64(hit)/draws
		rho := float64(c.correlation) / 100
		bound := 5 * math.Sqrt((want*(1-want)+1./draws)/draws*(1+rho)/(1-rho))
		if math.Abs(got-want) > bound {
			t.Errorf("%s with correlation %s: computed %.5f, the recurrence gives %.5f +-%.5f", c.p, c.correlation, got, want, bound)
		}
	}
	for _, c := range []struct{ p, correlation, want Percent }{{20, 0, 20}, {0, 25, 0}, {100, 25, 100}, {20, 100, 20}} {
		if got := CorrelatedShare(c.p, c.correlation); got != c.want {
			t.Errorf("%s with correlation %s: %s, want %s", c.p, c.correlation, got, c.want)
		}
	}
}

// netem's delays are as good as independent where correlationFolds says so. The
// bound is 5 standard deviations of the lag-1 autocorrelation of independent draws,
// 1/sqrt(draws), and a little for what is left of it.
func TestCorrelationFolds(t *testing.T) {
	const draws = 200_000
	for _, n := range []Netem{
		{Jitter: 20 * ms, DelayCorrelation: 25},
		{Jitter: 20 * ms, DelayCorrelation: 90},
		{Jitter: 100 * ms, DelayCorrelation: 75},
		{Jitter: 2 * time.Second, DelayCorrelation: 25},
		{Jitter: 2 * time.Second, DelayCorrelation: 90},
	} {
		state := crandom{rho: n.DelayCorrelation.Fraction(), random: rand.New(rand.NewPCG(2, 2))}
		modulus := uint32(2 * n.Jitter)
		var last, products, squares float64
		for range draws {
			x := float64(state.next()%modulus) - float64(n.Jitter)
			products, squares, last = products+x*last, squares+x*x, x
		}
		got := math.Abs(products / squares)
		if independent := got < 5/math.Sqrt(draws)+.01; independent != n.correlationFolds() {
			t.Errorf("jitter %v, correlation %s: autocorrelation %.3f, correlationFolds is %t", n.Jitter, n.DelayCorrelation, got, n.correlationFolds())
		}
	}
}
