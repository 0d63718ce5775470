package qdisc

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// MaxDelay is the longest Delay: an hour, far inside the kernel's signed 64-bit
// nanoseconds and longer than any client waits.
const MaxDelay = time.Hour

// MaxJitter is the largest Jitter. The kernel cuts a larger one to INT_MAX
// nanoseconds without a word (net/sched/sch_netem.c, netem_change).
const MaxJitter = math.MaxInt32 * time.Nanosecond

// Validate returns every field that is out of range or lacks what it depends on,
// as *FieldErrors joined with errors.Join, or nil.
func (n Netem) Validate() error {
	var v validation
	v.delay(n)
	v.loss(n)
	v.share("duplicate", n.Duplicate, n.DuplicateCorrelation)
	v.share("reorder", n.Reorder, n.ReorderCorrelation)
	if n.Reorder != 0 && n.Delay <= 0 {
		v.refuse("reorder", n.Reorder.String(), "a delay that the reordered packets skip, such as delay 10ms")
	}
	if n.Gap != 0 && n.Reorder == 0 {
		v.refuse("reorder.gap", count(uint64(n.Gap)), "a reorder share, such as reorder 25%")
	}
	v.share("corrupt", n.Corrupt, n.CorruptCorrelation)
	v.rate(n)
	v.slot(n.Slot)
	if !n.samplesFit() {
		v.refuse("slot.samples", n.Slot.Samples.String(), fmt.Sprintf("at most %d samples for delay and slot together", maxTables))
	}
	return errors.Join(v...)
}

// Validate refuses what is meaningless to ask for explicitly, though it is the
// zero value of a Netem: a limit of 0. Ranges are checked by Netem.Validate after
// Apply.
func (p Patch) Validate() error {
	if p.Limit != nil && *p.Limit == 0 {
		return &FieldError{Field: "limit", Value: "0", Want: fmt.Sprintf("1 packet or more (left out, it is %d, or less with a rate); a queue of 0 passes nothing", DefaultLimit)}
	}
	return nil
}

// validation collects errors. What they say is put together only when there is one,
// since everything that is sent is validated.
type validation []error

func (v *validation) refuse(field, value, want string) {
	*v = append(*v, &FieldError{Field: field, Value: value, Want: want})
}

func (v *validation) duration(field string, d, most time.Duration) {
	if d < 0 || d > most {
		v.refuse(field, d.String(), "a duration from 0s to "+FormatDuration(most)+", such as 100ms")
	}
}

func (v *validation) share(field string, p, correlation Percent) {
	if !p.valid() {
		v.refuse(field, p.String(), wantPercent)
	}
	if !correlation.valid() {
		v.refuse(field+".correlation", correlation.String(), wantPercent)
	}
	if correlation != 0 && p == 0 {
		v.refuse(field+".correlation", correlation.String(), "a share of "+field+" that it correlates")
	}
}

func (v *validation) delay(n Netem) {
	v.duration("delay", n.Delay, MaxDelay)
	v.duration("delay.jitter", n.Jitter, MaxJitter)
	if n.Jitter > 0 && n.Delay <= 0 {
		v.refuse("delay.jitter", FormatDuration(n.Jitter), "a delay that it varies, such as delay 100ms with jitter 20ms")
	}
	if n.Delay > 0 && n.Jitter > n.Delay {
		v.refuse("delay.jitter", FormatDuration(n.Jitter), "at most the delay, "+FormatDuration(n.Delay))
	}
	if !n.DelayCorrelation.valid() {
		v.refuse("delay.correlation", n.DelayCorrelation.String(), wantPercent)
	}
	if n.DelayCorrelation != 0 && n.Jitter == 0 {
		v.refuse("delay.correlation", n.DelayCorrelation.String(), "a jitter that it correlates")
	}
	v.shape("delay.distribution", "delay.samples", n.Distribution, n.Samples)
	if n.Distribution != "" && n.Jitter == 0 {
		v.refuse("delay.distribution", string(n.Distribution), "a jitter that it shapes, such as jitter 20ms")
	}
}

// shape checks a distribution and its table.
func (v *validation) shape(field, samples string, d Distribution, s Samples) {
	if !d.valid() {
		v.refuse(field, string(d), wantShape)
	}
	switch {
	case d == Custom && !s.valid():
		v.refuse(samples, s.String(), fmt.Sprintf("1 to %d samples for the distribution custom", MaxSamples))
	case d != Custom && s != "":
		v.refuse(samples, s.String(), "the distribution custom, whose table they are")
	}
}
