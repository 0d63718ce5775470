package verify

import (
	"fmt"
	"time"

	"netemd/qdisc"
)

const (
	// busyPackets in a row, at least, follow the first of a busy period, and busyTime
	// together makes a verdict.
	busyPackets = 3
	busyTime    = 50 * time.Millisecond
	// rateShare is how far off a rate may be.
	rateShare = .03
)

// transmission is how long a packet takes at the rate.
func (j *judge) transmission() time.Duration {
	return time.Duration(float64(onWire(j.netem, j.size)) / float64(j.netem.Rate) * float64(time.Second))
}

// checkOrder checks that no packet overtakes another, which is what a rate of
// qdisc.OrderRate is for: nothing can be sent fast enough to measure it.
func (j *judge) checkOrder() {
	overtaken, last := 0, -1
	for _, a := range j.arrivals {
		overtaken += want(a.number < last)
		last = max(last, a.number)
	}
	c := Check{
		Name: "out_of_order_packets", Asked: new(0.0), Measured: new(float64(overtaken)), ConfidencePercent: 100, Verdict: Pass,
		Note: "packets that came after a later one, of " + fmt.Sprint(len(j.arrivals)),
	}
	switch {
	case overtaken > 0 && j.netem.Reorder == 0:
		c.Verdict = Fail
	case len(j.arrivals) < MinPackets:
		c.Verdict = Inconclusive
	}
	j.add(c)
}

// checkRate checks how fast packets leave while others wait: from the first departure of
// each busy period to its last. A packet waited when it came before the one ahead of
// it had left; netem then sends it one transmission after that one.
func (j *judge) checkRate() {
	n := j.netem
	if n.Rate == 0 {
		return
	}
	if n.Rate == qdisc.OrderRate {
		j.checkOrder()
		return
	}
	c := Check{Name: "rate_bit_per_second", Asked: new(8 * float64(n.Rate)), ConfidencePercent: 100}
	defer func() { j.unless(&c); j.add(c) }()
	// The latest that a packet is there to be sent, after it was handed in.
	ready := delaysOf(n, 0).drawn(.9999)
	var busy time.Duration
	packets, periods := 0, 0
	end := func(first, last int) {
		if last-first >= busyPackets {
			busy += j.arrivals[last].at - j.arrivals[first].at
			packets += last - first
			periods++
		}
	}
	first := 0
	for i := 1; i < len(j.arrivals); i++ {
		a, ahead := j.arrivals[i], j.arrivals[i-1]
		if waited := j.sent[a.number]+ready < ahead.at && a.number >= ahead.number; !waited {
			end(first, i-1)
			first = i
		}
	}
	if len(j.arrivals) > 0 {
		end(first, len(j.arrivals)-1)
	}
	size := onWire(n, j.size)
	if busy < busyTime {
		c.Verdict = Inconclusive
		c.Note = fmt.Sprintf("packets waited for each other for %.0f ms together, less than %v: this machine did not send fast enough, or too few were sent", ms(busy), busyTime)
		return
	}
	bits := float64(8*packets) * float64(size)
	// Each end of a period may be seen late.
	off := time.Duration(periods) * (slack/2 + j.lateAt(.9))
	c.Measured = new(bits / busy.Seconds())
	c.Low = new(bits / (busy + off).Seconds() * (1 - rateShare))
	c.High = new(bits / max(busy-off, time.Nanosecond).Seconds() * (1 + rateShare))
	c.Note = fmt.Sprintf("%d packets of %d bytes (with the link's header, without check sequence and preamble: 24 bytes more on Ethernet) in %d busy periods of %.0f ms together; bounds are %.0f %% and what each period's ends may be late",
		packets, size, periods, ms(busy), 100*rateShare)
	c.Verdict = Pass
	if *c.Asked < *c.Low || *c.Asked > *c.High {
		c.Verdict = Fail
	}
}
