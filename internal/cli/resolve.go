package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/spf13/pflag"

	"netemd/internal/strictyaml"
	"netemd/qdisc"
)

// errNothingToSize is returned, wrapped, for a flag that sizes the queue of a delay or
// a rate that is not there.
var errNothingToSize = errors.New("nothing to size")

// What --tc and --distribution-file want.
const (
	wantTC    = "netem's words as tc has them, such as \"delay 100ms 20ms loss 5%\""
	wantTable = "tc's .dist format: 1 to 16384 whole numbers from -32768 to 32767 with white space between, in units of jitter/8192; lines with # are comments"
)

// impairs reports whether what is asked for is more than a seed and a queue.
func (w *asked) impairs() bool {
	rest := *w
	rest.instead = nil
	rest.patch.Seed, rest.patch.Limit, rest.expectRate, rest.queue, rest.preserveOrder = nil, nil, nil, nil, false
	return rest != asked{}
}

// says reports whether anything is asked for.
func (w *asked) says() bool { return w.impairs() || *w != asked{instead: w.instead} }

// resolve makes the patch that turns base into what is asked for, and says how it
// sized the queue.
func (w *asked) resolve(ctx context.Context, base qdisc.Netem) (qdisc.Patch, []string, error) {
	p := w.patch
	if w.tc != "" {
		var err error
		w.instead.VisitAll(func(f *pflag.Flag) {
			if f.Changed && err == nil {
				err = usageError{fmt.Errorf("want --tc alone, without --%s", f.Name)}
			}
		})
		if err != nil {
			return p, nil, err
		}
		if p, err = qdisc.ParseTCPatch(w.tc); err != nil {
			return p, nil, fmt.Errorf("--tc: %w", err)
		}
	}
	if err := w.shape(ctx, &p); err != nil {
		return p, nil, err
	}
	if err := w.slots(base, &p); err != nil {
		return p, nil, err
	}
	if err := p.Validate(); err != nil {
		return p, nil, err
	}
	if w.preserveOrder && p.Apply(base).Rate == 0 {
		rate := qdisc.OrderRate
		p.Rate = &rate
	}
	notes, err := w.size(p.Apply(base), &p)
	return p, notes, err
}

// shape reads the table of a custom distribution.
func (w *asked) shape(ctx context.Context, p *qdisc.Patch) error {
	switch {
	case w.samples == "":
		return nil
	case p.Distribution != nil:
		return usageError{errors.New("want one of --distribution and --distribution-file, not both")}
	}
	text, err := strictyaml.Load(ctx, w.samples)
	if err != nil {
		return usageError{fmt.Errorf("--distribution-file: %w; want %s", err, wantTable)}
	}
	samples, err := qdisc.ParseSamples(bytes.NewReader(text))
	if err != nil {
		return usageError{fmt.Errorf("--distribution-file %q: %w; want %s", w.samples, unformed(err), wantTable)}
	}
	custom := qdisc.Custom
	p.Distribution, p.Samples = &custom, &samples
	return nil
}

// unformed is what is wrong with a table, without what a table is. A word of a file
// that is none may be of any length.
func unformed(err error) error {
	const longest = 20
	var f *qdisc.FieldError
	if !errors.As(err, &f) {
		return err
	}
	if len(f.Value) > longest {
		return fmt.Errorf("has %q", f.Value[:longest]+"...")
	}
	return fmt.Errorf("has %q", f.Value)
}

// slots puts what is named of a slot into the slot that there is.
func (w *asked) slots(base qdisc.Netem, p *qdisc.Patch) error {
	s := w.slot
	times := s.times
	switch {
	case s == slotFlags{}:
		return nil
	case s.times != nil && s.shape != nil:
		return usageError{errors.New("want one of --slot and --slot-distribution, not both")}
	case s.shape != nil:
		times = s.shape
	}
	slot := base.Slot
	if times != nil {
		slot = *times
		if slot != (qdisc.Slot{}) { // else no slots any more
			slot.Packets, slot.Bytes = base.Slot.Packets, base.Slot.Bytes
		}
	}
	if s.packets != nil {
		slot.Packets = *s.packets
	}
	if s.bytes != nil {
		slot.Bytes = *s.bytes
	}
	p.Slot = &slot
	return nil
}

// size sets the limit of n's queue from the traffic that is expected, or the wait that
// is allowed.
func (w *asked) size(n qdisc.Netem, p *qdisc.Patch) ([]string, error) {
	held := n.Delay + n.Jitter
	switch {
	case w.expectRate == nil && w.queue == nil:
		return nil, nil
	case w.expectRate != nil && w.queue != nil:
		return nil, usageError{errors.New("want one of --expect-rate and --queue, not both")}
	case w.patch.Limit != nil:
		return nil, usageError{errors.New("--limit sizes the queue already: want one of --limit, --expect-rate and --queue")}
	case w.expectRate != nil && held == 0:
		return nil, usageError{fmt.Errorf("--expect-rate: %w: want a delay beside it, such as --delay 100ms", errNothingToSize)}
	case w.queue != nil && n.Rate == 0:
		return nil, usageError{fmt.Errorf("--queue: %w: want a rate beside it, such as --rate 10mbit", errNothingToSize)}
	case w.expectRate != nil:
		limit := qdisc.LimitFor(*w.expectRate, held)
		p.Limit = &limit
		return []string{fmt.Sprintf("limit %d packets: %v held for %s in frames of 1514 bytes%s",
			limit, *w.expectRate, qdisc.FormatDuration(held), spare(limit))}, nil
	}
	limit := qdisc.LimitForQueue(n.Rate, *w.queue+held)
	p.Limit = &limit
	return []string{fmt.Sprintf("limit %d packets: %s of waiting%s at %v in frames of 1514 bytes",
		limit, qdisc.FormatDuration(*w.queue), beside(held), n.Rate)}, nil
}

// spare says what a limit for an expected rate has beside the packets that are held.
func spare(limit uint32) string {
	switch limit {
	case qdisc.LimitFor(1, 0):
		return " would do with less; this is the least"
	case math.MaxUint32:
		return " would need more; this is the most that there is"
	}
	return ", and half as many again"
}

func beside(held time.Duration) string {
	if held == 0 {
		return ""
	}
	return " beside " + qdisc.FormatDuration(held) + " of delay"
}
