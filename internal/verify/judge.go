package verify

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

const (
	// placeError is the chance that a place that does what was asked fails, over all
	// its checks: 99.9 % are judged right.
	placeError = .001
	// enough is how many events a share must lead one to expect for a verdict.
	enough = 10
)

// Bounds of what a measured time may be off by.
const (
	// resolution is how much earlier than asked a packet may be seen to be: clocks are
	// slewed by up to 500 ppm (adjtimex(2)) on top.
	resolution = 20 * time.Microsecond
	slew       = 500e-6
	// Late by scheduling may be a packet by slack, plus slackShare of what was asked,
	// plus lateFactor times what this process itself was late, for a pass up to
	// lateShare of what was asked.
	slack      = time.Millisecond
	slackShare = .01
	lateFactor = 3
	lateShare  = .1
)

// sighting is all that is known of one run at one place.
type sighting struct {
	netem  qdisc.Netem
	engine fault.Engine
	// sent is when each number was handed to the kernel, since the run's beginning.
	sent []time.Duration
	// arrivals are in the order of their coming.
	arrivals []arrival
	// size is that of each frame, in bytes, without its check sequence.
	size int
	// capable says that the packets could be marked (ECN).
	capable bool
	// blind is the share of a frame's bits whose flipping the capture cannot see, and
	// may take for a loss.
	blind float64
	// late is how late the sender itself was with each packet, sorted.
	late []time.Duration
	// missed are frames that the capture itself had no room for.
	missed int
	// stepped says that the clock was set during the run.
	stepped bool
	// counters are what the fault counted meanwhile, nil when that is not known.
	counters *fault.Counters
	// missing are the counters that the engine cannot give.
	missing []string
	// changed says that the fault did not stay as it was.
	changed bool
	// full says that the queue was seen full.
	full bool
}

// arrival is one copy of a packet that came.
type arrival struct {
	number int
	at     time.Duration
	// damaged says that a bit was flipped, marked that it carries Congestion
	// Experienced.
	damaged, marked bool
}

// judge compares what was asked with what was seen.
type judge struct {
	sighting
	expectation
	// alpha is the error of each check.
	alpha  float64
	checks []Check
	// copies is how often each number came, hits whether it was dropped or marked.
	copies []int
	hits   []bool
}

// assess judges s. Of the result it fills in what follows from s.
func assess(s sighting) PlaceResult {
	j := &judge{sighting: s, expectation: expect(s.netem, s.capable)}
	j.copies, j.hits = make([]int, len(s.sent)), make([]bool, len(s.sent))
	for _, a := range s.arrivals {
		j.copies[a.number]++
		j.hits[a.number] = j.hits[a.number] || a.marked
	}
	for i, n := range j.copies {
		j.hits[i] = j.hits[i] || n == 0
	}
	// Every check that draws its verdict from chance shares the error alike.
	planned := []func(){j.checkLoss, j.checkMarks, j.checkBurst, j.checkDuplicate, j.checkReorder, j.checkCorrupt, j.checkDelay, j.checkRate}
	j.alpha = placeError / float64(j.random())
	for _, check := range planned {
		check()
	}
	if j.changed { // then no number is that of what was asked
		for i := range j.checks {
			j.checks[i].Verdict = Inconclusive
		}
	}
	r := PlaceResult{Asked: s.netem.String(), Sent: len(s.sent), Checks: j.checks}
	for _, n := range j.copies {
		if n > 0 {
			r.Received++
		}
	}
	if n := len(s.sent); n > 1 && s.sent[n-1] > 0 {
		r.RatePacketsPerSecond = float64(n-1) / s.sent[n-1].Seconds()
	}
	if s.counters != nil && !slices.Contains(s.missing, "overflow") {
		r.Overflow = new(s.counters.Overflow)
	}
	r.Verdict, r.Reason = j.verdict()
	return r
}

// random counts the checks that are made with a bound.
func (j *judge) random() int {
	n := j.netem
	count := 1 // loss
	for _, more := range []int{
		want(j.marks), want(j.judgesBurst()), want(n.Duplicate > 0), want(n.Reorder > 0), want(n.Corrupt > 0),
		3 * want(j.judgesQuantiles()), 2 * want(j.judgesQuantiles() && n.Jitter > 0),
	} {
		count += more
	}
	return count
}

func want(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (j *judge) add(c Check) { j.checks = append(j.checks, c) }

// level is the confidence of each check.
func (j *judge) level() float64 { return 100 * (1 - j.alpha) }

// verdict weighs the checks, and what may stand above them.
func (j *judge) verdict() (Verdict, string) {
	if j.changed {
		return Inconclusive, "the fault was changed, or ended, while packets were on their way"
	}
	if v, reason := j.overflowed(); v != "" {
		return v, reason
	}
	if reason := j.thrown(); reason != "" {
		return Inconclusive, reason
	}
	if j.stepped {
		return Inconclusive, "the system's clock was set while packets were on their way"
	}
	if seen, ok := j.seen(); ok && seen < len(j.sent)*99/100 {
		return Inconclusive, fmt.Sprintf("only %d of %d packets passed the place, by the fault's own counter", seen, len(j.sent))
	}
	var failed, open []string
	judged := 0
	for _, c := range j.checks {
		switch c.Verdict {
		case Fail:
			failed = append(failed, sentence(c))
		case Inconclusive:
			open = append(open, c.Name+": "+c.Note)
		default:
			judged++
		}
	}
	opened := uint64(0)
	if j.counters != nil {
		opened = j.counters.Opened
	}
	switch {
	case len(failed) > 0 && opened > 0:
		return Inconclusive, fmt.Sprintf("%d packets passed unimpaired because the %s engine was kept waiting (this machine is too busy); %s",
			opened, j.engine, strings.Join(failed, "; "))
	case len(failed) > 0:
		return Fail, strings.Join(failed, "; ")
	case len(open) > 0:
		return Inconclusive, strings.Join(open, "; ")
	case len(j.arrivals) == 0 && j.counters == nil:
		// A way that does not lead through the place looks like the loss of all.
		return Inconclusive, "no packet arrived, as asked, but without the fault's counters it is not known whether they got to it"
	}
	if judged == 1 {
		return Pass, fmt.Sprintf("1 check holds at %s %%", number(100*(1-placeError)))
	}
	return Pass, fmt.Sprintf("%d checks hold, together at %s %%", judged, number(100*(1-placeError)))
}

// overflowed says so when a full queue dropped packets: the fault is not what was
// asked, whatever the other numbers are.
func (j *judge) overflowed() (Verdict, string) {
	limit := j.netem.Normalize().Limit
	switch {
	case j.counters != nil && j.counters.Overflow > 0 && !slices.Contains(j.missing, "overflow"):
		return Fail, fmt.Sprintf("overflow: a full queue dropped %d packets, which is no loss that was asked for: the limit of %d packets is too small",
			j.counters.Overflow, limit)
	case j.full:
		return Fail, fmt.Sprintf("overflow: the queue was full, and drops what comes then, which is no loss that was asked for: the limit of %d packets is too small", limit)
	}
	return "", ""
}

// thrown says so when packets were neither lost nor delayed by the fault, but thrown away
// on its way: then nothing is known of it.
func (j *judge) thrown() string {
	switch c := j.counters; {
	case c == nil:
	case c.Late > 0:
		return fmt.Sprintf("the engine stood still (this machine is too busy, or the agent was stopped), and threw %d packets away late", c.Late)
	case c.Refused > 0:
		return fmt.Sprintf("the device refused %d packets, which is no loss that was asked for", c.Refused)
	}
	return ""
}

// seen is how many packets the fault saw, if that is known.
func (j *judge) seen() (int, bool) {
	if j.counters == nil || slices.Contains(j.missing, "seen") {
		return 0, false
	}
	return int(min(j.counters.Seen, math.MaxInt32)), true
}

// othersPercent is how many packets of others, in percent of those sent, may pass meanwhile for
// what they change to be told from a fault that does something else.
const othersPercent = 1

// unless leaves a failure open where packets of others passed the place meanwhile: they
// take a part of the rate, and of the draws that make a burst or a gap.
func (j *judge) unless(c *Check) {
	seen, ok := j.seen()
	others := seen - len(j.sent)
	if c.Verdict != Fail || !ok || j.netem.Duplicate > 0 || 100*others <= othersPercent*len(j.sent) {
		return
	}
	c.Verdict = Inconclusive
	c.Note = joined(fmt.Sprintf("%d packets of others passed meanwhile, and share in it", others), c.Note)
}

// sentence says a check in words.
func sentence(c Check) string {
	s := c.Name
	if c.Asked != nil {
		s += " asked " + number(*c.Asked)
	}
	if c.Measured != nil {
		s += " measured " + number(*c.Measured)
	}
	switch {
	case c.Low != nil && c.High != nil:
		s += fmt.Sprintf(" (%s to %s)", number(*c.Low), number(*c.High))
	case c.Low != nil:
		s += fmt.Sprintf(" (%s or more)", number(*c.Low))
	case c.High != nil:
		s += fmt.Sprintf(" (%s or less)", number(*c.High))
	}
	if c.Note != "" {
		s += ": " + c.Note
	}
	return s
}

// number has at most four significant digits.
func number(v float64) string {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return fmt.Sprint(v)
	}
	digits := max(0, 3-int(math.Floor(math.Log10(math.Abs(v)))))
	s := fmt.Sprintf("%.*f", min(digits, 9), v)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
