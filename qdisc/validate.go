package qdisc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// MaxDelay is the longest Delay: an hour, far inside the kernel's signed 64-bit
// nanoseconds and longer than any client waits.
const MaxDelay = time.Hour

// MaxJitter is the largest Jitter. The kernel cuts a larger one to INT_MAX
// nanoseconds without a word (net/sched/sch_netem.c, netem_change).
const MaxJitter = math.MaxInt32 * time.Nanosecond

// minOverhead is the lowest PacketOverhead: the smallest packet, a bare IPv4 header,
// must not come out below nothing, since the kernel would take that for a packet of
// 2^64 bytes (net/sched/sch_netem.c, packet_time_ns).
const minOverhead = -20

// superPacket is the size of the packets for which cells must be countable in the
// kernel's 32 bits.
const superPacket = 64 << 10

// Validate returns every field that is out of range or lacks what it depends on,
// as *FieldErrors joined with errors.Join, or nil.
func (n Netem) Validate() error {
	var v validation
	v.duration("delay", n.Delay, MaxDelay)
	v.duration("delay.jitter", n.Jitter, MaxJitter)
	if n.Jitter > 0 {
		v.needs(n.Delay > 0, "delay.jitter", FormatDuration(n.Jitter), "a delay that it varies, such as delay 100ms with jitter 20ms")
		v.needs(n.Delay <= 0 || n.Jitter <= n.Delay, "delay.jitter", FormatDuration(n.Jitter), "at most the delay, "+FormatDuration(n.Delay))
	}
	v.correlation("delay", n.DelayCorrelation, n.Jitter != 0, "a jitter")
	v.shape("delay", n.Distribution, n.Samples)
	v.needs(n.Distribution == "" || n.Jitter != 0, "delay.distribution", string(n.Distribution), "a jitter that it shapes, such as jitter 20ms")
	v.loss(n)
	v.share("duplicate", n.Duplicate, n.DuplicateCorrelation)
	v.share("reorder", n.Reorder, n.ReorderCorrelation)
	v.needs(n.Reorder == 0 || n.Delay > 0, "reorder", n.Reorder.String(), "a delay that the reordered packets skip, such as delay 10ms")
	v.needs(n.Gap == 0 || n.Reorder != 0, "reorder.gap", count(uint64(n.Gap)), "a reorder share, such as reorder 25%")
	v.share("corrupt", n.Corrupt, n.CorruptCorrelation)
	v.rate(n)
	v.slot(n.Slot)
	v.needs(n.samplesFit(), "slot.samples", n.Slot.Samples.String(), fmt.Sprintf("at most %d samples for delay and slot together", maxTables))
	return errors.Join(v...)
}

// Validate refuses what is meaningless to ask for explicitly, though it is the
// zero value of a Netem: a limit of 0. Ranges are checked by Netem.Validate after
// Apply.
func (p Patch) Validate() error {
	if p.Limit != nil && *p.Limit == 0 {
		return &FieldError{Field: "limit", Value: "0", Want: fmt.Sprintf("1 packet or more (left out, it is %d); a queue of 0 passes nothing", DefaultLimit)}
	}
	return nil
}

type validation []error

func (v *validation) needs(ok bool, field, value, want string) {
	if !ok {
		*v = append(*v, &FieldError{Field: field, Value: value, Want: want})
	}
}

func (v *validation) duration(field string, d, most time.Duration) {
	v.needs(d >= 0 && d <= most, field, d.String(), "a duration from 0s to "+FormatDuration(most)+", such as 100ms")
}

func (v *validation) share(field string, p, correlation Percent) {
	v.needs(p.valid(), field, p.String(), wantPercent)
	v.correlation(field, correlation, p != 0, "a share of "+field)
}

func (v *validation) correlation(field string, p Percent, based bool, base string) {
	v.needs(p.valid(), field+".correlation", p.String(), wantPercent)
	v.needs(p == 0 || based, field+".correlation", p.String(), base+" that it correlates")
}

// shape checks a distribution and its table.
func (v *validation) shape(field string, d Distribution, s Samples) {
	v.needs(d.valid(), field+".distribution", string(d), wantShape)
	switch {
	case d == Custom:
		v.needs(s.valid(), field+".samples", s.String(), fmt.Sprintf("1 to %d samples for the distribution custom", MaxSamples))
	case s != "":
		v.needs(false, field+".samples", s.String(), "the distribution custom, whose table they are")
	}
}

// loss checks the kinds of loss, of which one is given at most.
func (v *validation) loss(n Netem) {
	var kinds []string
	for _, k := range []struct {
		name  string
		given bool
	}{
		{"loss", n.Loss != 0 || n.LossCorrelation != 0},
		{"loss.state", n.LossState != LossState{}},
		{"loss.gemodel", n.GilbertElliott != GilbertElliott{}},
	} {
		if k.given {
			kinds = append(kinds, k.name)
		}
	}
	if len(kinds) > 1 {
		v.needs(false, kinds[1], strings.Join(kinds, " and "), "one kind of loss: random (loss), 4-state (loss state) or Gilbert-Elliott (loss gemodel)")
	}
	v.share("loss", n.Loss, n.LossCorrelation)
	v.lossState(n.LossState)
	v.gilbertElliott(n.GilbertElliott)
	v.needs(!n.ECN || len(kinds) > 0, "ecn", "", "a loss, whose packets it marks instead, such as loss 1%")
}

func (v *validation) lossState(s LossState) {
	if s == (LossState{}) {
		return
	}
	for _, c := range []struct {
		name string
		p    Percent
	}{{"p13", s.P13}, {"p31", s.P31}, {"p32", s.P32}, {"p23", s.P23}, {"p14", s.P14}} {
		v.needs(c.p.valid(), "loss.state."+c.name, c.p.String(), wantPercent)
	}
	v.needs(s.P13 != 0 || s.P14 != 0, "loss.state.p13", s.P13.String(), "a share above 0%, or a p14 above 0%: without either, nothing is ever lost")
	v.needs(!over100(s.P13, s.P14), "loss.state.p14", s.P14.String(), "p13 and p14 of 100% at most together")
	v.needs(!over100(s.P31, s.P32), "loss.state.p32", s.P32.String(), "p31 and p32 of 100% at most together")
}

// over100 reports whether both are more than 100 % by more than the encoding's
// rounding.
func over100(a, b Percent) bool {
	return uint64(a.Fraction())+uint64(b.Fraction()) > math.MaxUint32+1
}

func (v *validation) gilbertElliott(g GilbertElliott) {
	if g == (GilbertElliott{}) {
		return
	}
	for _, c := range []struct {
		name string
		p    Percent
	}{{"p", g.P}, {"r", g.R}, {"loss_bad", g.LossBad}, {"loss_good", g.LossGood}} {
		v.needs(c.p.valid(), "loss.gemodel."+c.name, c.p.String(), wantPercent)
	}
	v.needs(g.P != 0, "loss.gemodel.p", g.P.String(), "a share above 0%, the chance of a packet to begin a bad time")
}

func (v *validation) rate(n Netem) {
	v.needs(n.Rate <= MaxRate, "rate", n.Rate.String(), wantRate)
	needsRate := func(given bool, field, value string) {
		v.needs(!given || n.Rate != 0, field, value, "a rate that it counts for, such as rate 10mbit")
	}
	needsRate(n.PacketOverhead != 0, "rate.packet_overhead", strconv.Itoa(int(n.PacketOverhead)))
	needsRate(n.CellSize != 0, "rate.cell_size", count(uint64(n.CellSize)))
	v.needs(n.PacketOverhead >= minOverhead, "rate.packet_overhead", strconv.Itoa(int(n.PacketOverhead)),
		fmt.Sprintf("a whole number of bytes from %d to %d", minOverhead, math.MaxInt32))
	if n.CellSize == 0 {
		v.needs(n.CellOverhead == 0, "rate.cell_overhead", strconv.Itoa(int(n.CellOverhead)), "a cell size, such as 48, to whose cells it is added")
		return
	}
	size := int64(n.CellSize)
	cells := (superPacket + max(int64(n.PacketOverhead), 0) + size - 1) / size
	low, high := max(-size, math.MinInt32), min(math.MaxUint32/cells-size, math.MaxInt32)
	v.needs(high >= 0, "rate.cell_size", count(uint64(n.CellSize)), "cells that hold a packet of 64 KiB in less than 4 GiB")
	v.needs(high < 0 || int64(n.CellOverhead) >= low && int64(n.CellOverhead) <= high, "rate.cell_overhead", strconv.Itoa(int(n.CellOverhead)),
		fmt.Sprintf("a whole number of bytes from %d to %d", low, high))
}

func (v *validation) slot(s Slot) {
	if s == (Slot{}) {
		return
	}
	v.needs(s.Packets <= math.MaxInt32, "slot.packets", count(uint64(s.Packets)), fmt.Sprintf("at most %d packets; 0 is no bound", math.MaxInt32))
	v.needs(s.Bytes <= math.MaxInt32, "slot.bytes", s.Bytes.String(), fmt.Sprintf("at most %dB; 0B is no bound", math.MaxInt32))
	if s.Distribution != "" {
		v.needs(s.MinDelay == 0 && s.MaxDelay == 0, "slot.min_delay", FormatDuration(s.MinDelay), "either times from min to max or a distribution")
		v.needs(s.Distribution != Uniform, "slot.distribution", string(s.Distribution), "normal, pareto, paretonormal or custom; uniform is said by min and max")
		v.shape("slot", s.Distribution, s.Samples)
		v.duration("slot.delay", s.Delay, MaxDelay)
		v.duration("slot.jitter", s.Jitter, MaxJitter)
		v.needs(s.Jitter != 0, "slot.jitter", FormatDuration(s.Jitter), "a duration above 0s that the distribution shapes, such as 5ms")
		return
	}
	v.needs(s.Delay == 0 && s.Jitter == 0 && s.Samples == "", "slot.distribution", "", "normal, pareto, paretonormal or custom, for a delay with a jitter")
	v.duration("slot.min_delay", s.MinDelay, MaxDelay)
	v.duration("slot.max_delay", s.MaxDelay, MaxDelay)
	v.needs(s.MinDelay != 0 || s.MaxDelay != 0 || s.Delay != 0 || s.Jitter != 0, "slot.min_delay", "0s", "a time between slots above 0s, such as 10ms")
	longest := s.MinDelay + MaxJitter
	// The kernel multiplies the difference with a 32-bit number, in 64 bits
	// (net/sched/sch_netem.c, get_slot_next).
	v.needs(s.MaxDelay == 0 || s.MaxDelay >= s.MinDelay && s.MaxDelay <= longest, "slot.max_delay", FormatDuration(s.MaxDelay),
		fmt.Sprintf("from the least, %s, to %s", FormatDuration(s.MinDelay), FormatDuration(longest)))
}
