package qdisc

import (
	"strings"
)

// tcWords are the words that begin an option, as tc knows them.
var tcWords = []struct {
	name, option string
	read         func(*tcParser) error
}{
	{"limit", "limit", (*tcParser).limit},
	{"latency", "delay", (*tcParser).delay},
	{"delay", "delay", (*tcParser).delay},
	{"loss", "loss", (*tcParser).loss},
	{"drop", "loss", (*tcParser).loss},
	{"seed", "seed", (*tcParser).seed},
	{"ecn", "ecn", (*tcParser).ecn},
	{"reorder", "reorder", (*tcParser).reorder},
	{"corrupt", "corrupt", (*tcParser).corrupt},
	{"gap", "gap", (*tcParser).gap},
	{"duplicate", "duplicate", (*tcParser).duplicate},
	{"distribution", "distribution", (*tcParser).distribution},
	{"rate", "rate", (*tcParser).rate},
	{"slot", "slot", (*tcParser).slot},
}

const wantTC = "limit, delay, distribution, loss, ecn, reorder, gap, duplicate, corrupt, rate, slot or seed"

// ParseTC reads the arguments of `tc qdisc add dev X root netem`: "delay 100ms 20ms
// 25% distribution normal loss gemodel 1% 10%". Words and units mean what they mean to
// tc: "drop" is loss, "latency" delay; words can be cut short, to two letters at least;
// mbps are bytes and kb 1024 of them; a number without a unit is a percentage, bits per
// second for rate, bytes for bytes, microseconds for delay (as tc's manual says; iproute2
// 6.9 and later take it for nanoseconds), and nanoseconds for slot (as all versions take
// it). What loss state and loss gemodel leave out is what tc takes for it.
//
// It differs from tc where tc would silently do something else:
//   - A limit that is left out is 0, so that Normalize chooses it; tc's 1000 overflows.
//   - A word that is given twice is refused; the last would be taken.
//   - What Validate refuses is refused.
//   - Distributions are those of ParseDistribution but custom, which has no file here.
//   - A rate in percent, which needs the device's speed, is refused.
//
// An error of the text is a *FieldError that names the word; one of Validate is what that
// returns.
func ParseTC(text string) (Netem, error) {
	p, err := parseTC(text)
	if err == nil {
		err = p.netem.Validate()
	}
	if err != nil {
		return Netem{}, err
	}
	return p.netem, nil
}

func parseTC(text string) (tcParser, error) {
	p := tcParser{words: strings.Fields(text), given: map[string]bool{}}
	for len(p.words) > 0 {
		if err := p.option(); err != nil {
			return p, err
		}
	}
	return p, nil
}

type tcParser struct {
	words []string // that are left
	given map[string]bool
	netem Netem
}

func (p *tcParser) option() error {
	word := p.words[0]
	for _, o := range tcWords {
		if len(word) < 2 || !strings.HasPrefix(o.name, word) {
			continue
		}
		if p.given[o.option] {
			return &FieldError{Field: o.option, Value: word, Want: "it once"}
		}
		p.given[o.option] = true
		p.words = p.words[1:]
		return o.read(p)
	}
	return &FieldError{Value: word, Want: wantTC}
}

// next takes the next word, empty if there is none.
func (p *tcParser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

// number reports whether a number follows, as tc decides it.
func (p *tcParser) number() bool {
	return len(p.words) > 0 && p.words[0][0] >= '0' && p.words[0][0] <= '9'
}

func (p *tcParser) signedNumber() bool {
	return p.number() || len(p.words) > 0 && p.words[0][0] == '-'
}

// follows takes the next word if it is name, perhaps cut short.
func (p *tcParser) follows(name string) bool {
	if len(p.words) == 0 || !strings.HasPrefix(name, p.words[0]) {
		return false
	}
	p.words = p.words[1:]
	return true
}

func (p *tcParser) limit() (err error) {
	v, err := tcSize("limit", p.next())
	p.netem.Limit = uint32(v)
	if err == nil && v == 0 {
		return Patch{Limit: &p.netem.Limit}.Validate()
	}
	return err
}

func (p *tcParser) delay() (err error) {
	n := &p.netem
	if n.Delay, err = tcDuration("delay", p.next(), microsecond); err != nil || !p.number() {
		return err
	}
	if n.Jitter, err = tcDuration("delay.jitter", p.next(), microsecond); err != nil || !p.number() {
		return err
	}
	n.DelayCorrelation, err = tcPercent("delay.correlation", p.next())
	return err
}

func (p *tcParser) distribution() (err error) {
	p.netem.Distribution, err = tcDistribution("distribution", p.next())
	return err
}

func (p *tcParser) loss() error {
	if p.number() {
		return p.correlated("loss", &p.netem.Loss, &p.netem.LossCorrelation)
	}
	switch word := p.next(); word {
	case "random":
		return p.correlated("loss", &p.netem.Loss, &p.netem.LossCorrelation)
	case "state":
		shares, err := p.shares("loss state", "p13", "p31", "p32", "p23", "p14")
		if err == nil {
			p.netem.LossState = lossStateOf(shares)
		}
		return err
	case "gemodel":
		shares, err := p.shares("loss gemodel", "p", "r", "1-h", "1-k")
		if err != nil {
			return err
		}
		if len(shares) > 2 && shares[2] == 0 {
			return &FieldError{Field: "loss gemodel 1-h", Value: "0%", Want: wantLossBad}
		}
		p.netem.GilbertElliott = gilbertElliottOf(shares)
		return nil
	default:
		return &FieldError{Field: "loss", Value: word, Want: "a percentage, random, state or gemodel"}
	}
}

// shares reads one percentage for each name; all but the first can be left out.
func (p *tcParser) shares(field string, names ...string) ([]Percent, error) {
	var shares []Percent
	for k, name := range names {
		if k > 0 && !p.number() {
			break
		}
		v, err := tcPercent(field+" "+name, p.next())
		if err != nil {
			return nil, err
		}
		shares = append(shares, v)
	}
	return shares, nil
}

// correlated reads a share and perhaps its correlation.
func (p *tcParser) correlated(field string, share, correlation *Percent) (err error) {
	if *share, err = tcPercent(field, p.next()); err != nil || !p.number() {
		return err
	}
	*correlation, err = tcPercent(field+".correlation", p.next())
	return err
}

func (p *tcParser) seed() (err error) {
	p.netem.Seed, err = tcSeed(p.next())
	return err
}

func (p *tcParser) ecn() error {
	p.netem.ECN = true
	return nil
}

func (p *tcParser) reorder() error {
	return p.correlated("reorder", &p.netem.Reorder, &p.netem.ReorderCorrelation)
}

func (p *tcParser) corrupt() error {
	return p.correlated("corrupt", &p.netem.Corrupt, &p.netem.CorruptCorrelation)
}

func (p *tcParser) duplicate() error {
	return p.correlated("duplicate", &p.netem.Duplicate, &p.netem.DuplicateCorrelation)
}

func (p *tcParser) gap() error {
	v, err := tcInteger("gap", p.next(), 0, maxUint32)
	p.netem.Gap = uint32(v)
	return err
}

func (p *tcParser) rate() (err error) {
	n := &p.netem
	if n.Rate, err = tcRate(p.next()); err != nil {
		return err
	}
	if p.signedNumber() {
		v, err := tcInteger("rate.packet_overhead", p.next(), minInt32, maxInt32)
		if err != nil {
			return err
		}
		n.PacketOverhead = int32(v)
	}
	if p.number() {
		v, err := tcInteger("rate.cell_size", p.next(), 0, maxUint32)
		if err != nil {
			return err
		}
		n.CellSize = uint32(v)
	}
	if p.signedNumber() {
		v, err := tcInteger("rate.cell_overhead", p.next(), minInt32, maxInt32)
		if err != nil {
			return err
		}
		n.CellOverhead = int32(v)
	}
	return nil
}

func (p *tcParser) slot() error {
	if err := p.slotTimes(); err != nil {
		return err
	}
	s := &p.netem.Slot
	if p.follows("packets") {
		v, err := tcInteger("slot.packets", p.next(), 0, maxInt32)
		if err != nil {
			return err
		}
		s.Packets = uint32(v)
	}
	if p.follows("bytes") {
		v, err := tcSize("slot.bytes", p.next())
		if err != nil {
			return err
		}
		s.Bytes = Bytes(v)
	}
	return nil
}

func (p *tcParser) slotTimes() (err error) {
	s := &p.netem.Slot
	if p.number() {
		if s.MinDelay, err = tcDuration("slot.min_delay", p.next(), nanosecond); err != nil {
			return err
		}
		s.MaxDelay = s.MinDelay
		if p.number() {
			s.MaxDelay, err = tcDuration("slot.max_delay", p.next(), nanosecond)
		}
		return err
	}
	if word := p.next(); word != "distribution" {
		return &FieldError{Field: "slot", Value: word, Want: "a time, such as 10ms, or distribution"}
	}
	if s.Distribution, err = tcDistribution("slot.distribution", p.next()); err != nil {
		return err
	}
	if s.Delay, err = tcDuration("slot.delay", p.next(), nanosecond); err != nil {
		return err
	}
	if s.Jitter, err = tcDuration("slot.jitter", p.next(), nanosecond); err != nil {
		return err
	}
	if s.Distribution == Uniform {
		if s.Jitter > s.Delay {
			return &FieldError{Field: "slot.jitter", Value: FormatDuration(s.Jitter), Want: "at most the delay, " + FormatDuration(s.Delay)}
		}
		*s = Slot{MinDelay: s.Delay - s.Jitter, MaxDelay: s.Delay + s.Jitter}
	}
	return nil
}
