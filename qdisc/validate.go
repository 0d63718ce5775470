package qdisc

import (
	"errors"
	"fmt"
	"math"
	"strconv"
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
	v.duration("delay", n.Delay, MaxDelay)
	v.duration("delay.jitter", n.Jitter, MaxJitter)
	if n.Jitter > 0 {
		v.needs(n.Delay > 0, "delay.jitter", FormatDuration(n.Jitter), "a delay that it varies, such as delay 100ms with jitter 20ms")
		v.needs(n.Delay <= 0 || n.Jitter <= n.Delay, "delay.jitter", FormatDuration(n.Jitter), "at most the delay, "+FormatDuration(n.Delay))
	}
	v.correlation("delay", n.DelayCorrelation, n.Jitter != 0, "a jitter")
	v.needs(n.Distribution.valid(), "delay.distribution", string(n.Distribution), wantShape)
	v.needs(n.Distribution == "" || n.Jitter != 0, "delay.distribution", string(n.Distribution), "a jitter that it shapes, such as jitter 20ms")
	v.share("loss", n.Loss, n.LossCorrelation)
	v.share("duplicate", n.Duplicate, n.DuplicateCorrelation)
	v.share("reorder", n.Reorder, n.ReorderCorrelation)
	v.needs(n.Reorder == 0 || n.Delay > 0, "reorder", n.Reorder.String(), "a delay that the reordered packets skip, such as delay 10ms")
	v.needs(n.Gap == 0 || n.Reorder != 0, "reorder.gap", strconv.FormatUint(uint64(n.Gap), 10), "a reorder share, such as reorder 25%")
	v.share("corrupt", n.Corrupt, n.CorruptCorrelation)
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

// Normalize returns n with what it leaves open filled in: Limit is DefaultLimit,
// and Gap is 1 with a Reorder. It is what is sent and what is read back.
func (n Netem) Normalize() Netem {
	if n.Limit == 0 {
		n.Limit = DefaultLimit
	}
	if n.Reorder > 0 && n.Gap == 0 {
		n.Gap = 1
	}
	return n
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
