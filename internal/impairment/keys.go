// Package impairment is a qdisc.Netem as our YAML files say it, for labs, profiles and
// schedules: {delay: 10ms, jitter: 2ms, loss: 1%}, or tc's own words, "delay 10ms 2ms loss 1%".
package impairment

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"netemd/qdisc"
)

// Keys are the keys of an impairment in a file: those of netemctl's flags, with '_' for '-'.
// The zero value impairs nothing. It is read by package strictyaml, as keys or as one text.
type Keys struct {
	Loss                 qdisc.Percent        `yaml:"loss,omitempty"`
	LossCorrelation      qdisc.Percent        `yaml:"loss_correlation,omitempty"`
	LossState            qdisc.LossState      `yaml:"loss_state,omitempty"`
	LossGemodel          qdisc.GilbertElliott `yaml:"loss_gemodel,omitempty"`
	ECN                  bool                 `yaml:"ecn,omitempty"`
	Delay                time.Duration        `yaml:"delay,omitempty"`
	Jitter               time.Duration        `yaml:"jitter,omitempty"`
	DelayCorrelation     qdisc.Percent        `yaml:"delay_correlation,omitempty"`
	Distribution         qdisc.Distribution   `yaml:"distribution,omitempty" want:"uniform, normal, pareto or paretonormal"`
	Reorder              qdisc.Percent        `yaml:"reorder,omitempty"`
	ReorderCorrelation   qdisc.Percent        `yaml:"reorder_correlation,omitempty"`
	Gap                  uint32               `yaml:"gap,omitempty" want:"a number of packets"`
	Duplicate            qdisc.Percent        `yaml:"duplicate,omitempty"`
	DuplicateCorrelation qdisc.Percent        `yaml:"duplicate_correlation,omitempty"`
	Corrupt              qdisc.Percent        `yaml:"corrupt,omitempty"`
	CorruptCorrelation   qdisc.Percent        `yaml:"corrupt_correlation,omitempty"`
	Rate                 qdisc.Rate           `yaml:"rate,omitempty"`
	// Queue is the longest wait in the queue of Rate; it becomes a limit.
	Queue          time.Duration `yaml:"queue,omitempty"`
	PacketOverhead int32         `yaml:"packet_overhead,omitempty" want:"a whole number of bytes, such as 14 or -4"`
	CellSize       uint32        `yaml:"cell_size,omitempty" want:"a number of bytes, such as 48"`
	CellOverhead   int32         `yaml:"cell_overhead,omitempty" want:"a whole number of bytes, such as 5"`
	Slot           slot          `yaml:"slot,omitempty"`
	SlotPackets    uint32        `yaml:"slot_packets,omitempty" want:"a number of packets"`
	SlotBytes      qdisc.Bytes   `yaml:"slot_bytes,omitempty"`
	Limit          uint32        `yaml:"limit,omitempty" want:"a number of packets"`
	Seed           uint64        `yaml:"seed,omitempty" want:"a number from 1"`
}

// slot is the times of a qdisc.Slot: "10ms", "10ms,20ms" or "normal,10ms,5ms".
type slot qdisc.Slot

func (s *slot) UnmarshalText(text []byte) error {
	v, err := qdisc.ParseSlot(string(text))
	*s = slot(v)
	return err
}

func (s slot) MarshalText() ([]byte, error) {
	parts := []string{qdisc.FormatDuration(s.MinDelay), qdisc.FormatDuration(s.MaxDelay)}
	if s.Distribution != "" {
		parts = []string{string(s.Distribution), qdisc.FormatDuration(s.Delay), qdisc.FormatDuration(s.Jitter)}
	}
	return []byte(strings.Join(parts, ",")), nil
}

// TextOrKeys says that an impairment may be one text.
func (k *Keys) TextOrKeys() {}

// UnmarshalText reads tc's words for netem: "delay 10ms 2ms loss 1%".
func (k *Keys) UnmarshalText(text []byte) error {
	n, err := qdisc.ParseTC(string(text))
	if err != nil {
		return err
	}
	*k, err = Of(n)
	return err
}

// WantYAML is the form, after "want".
func (Keys) WantYAML() string {
	return "an impairment, such as {delay: 10ms, loss: 1%} or \"delay 10ms loss 1%\", or the key left out"
}

// Of is n as keys. A distribution of the user's own has none: the error is errors.ErrUnsupported.
func Of(n qdisc.Netem) (Keys, error) {
	if n.Samples != "" || n.Slot.Samples != "" {
		return Keys{}, fmt.Errorf("a distribution of samples in a file: %w", errors.ErrUnsupported)
	}
	k := Keys{
		Loss: n.Loss, LossCorrelation: n.LossCorrelation, LossState: n.LossState, LossGemodel: n.GilbertElliott, ECN: n.ECN,
		Delay: n.Delay, Jitter: n.Jitter, DelayCorrelation: n.DelayCorrelation, Distribution: n.Distribution,
		Reorder: n.Reorder, ReorderCorrelation: n.ReorderCorrelation, Gap: n.Gap,
		Duplicate: n.Duplicate, DuplicateCorrelation: n.DuplicateCorrelation, Corrupt: n.Corrupt, CorruptCorrelation: n.CorruptCorrelation,
		Rate: n.Rate, PacketOverhead: n.PacketOverhead, CellSize: n.CellSize, CellOverhead: n.CellOverhead,
		SlotPackets: n.Slot.Packets, SlotBytes: n.Slot.Bytes, Limit: n.Limit, Seed: n.Seed,
	}
	k.Slot = slot(n.Slot)
	k.Slot.Packets, k.Slot.Bytes = 0, 0
	return k, nil
}

// Netem is what the keys say.
func (k Keys) Netem() qdisc.Netem {
	n := qdisc.Netem{
		Loss: k.Loss, LossCorrelation: k.LossCorrelation, LossState: k.LossState, GilbertElliott: k.LossGemodel, ECN: k.ECN,
		Delay: k.Delay, Jitter: k.Jitter, DelayCorrelation: k.DelayCorrelation, Distribution: k.Distribution,
		Reorder: k.Reorder, ReorderCorrelation: k.ReorderCorrelation, Gap: k.Gap,
		Duplicate: k.Duplicate, DuplicateCorrelation: k.DuplicateCorrelation, Corrupt: k.Corrupt, CorruptCorrelation: k.CorruptCorrelation,
		Rate: k.Rate, PacketOverhead: k.PacketOverhead, CellSize: k.CellSize, CellOverhead: k.CellOverhead,
		Slot: qdisc.Slot(k.Slot), Limit: k.Limit, Seed: k.Seed,
	}
	n.Slot.Packets, n.Slot.Bytes = k.SlotPackets, k.SlotBytes
	if k.Queue != 0 && k.Limit == 0 && k.Rate != 0 {
		// The limit counts what the delay holds, too.
		held := n.DelayQuantile(1)
		if k.Queue <= math.MaxInt64-held {
			n.Limit = qdisc.LimitForQueue(n.Rate, k.Queue+held)
		}
	}
	return n
}

// Validate returns all that is wrong, each a *qdisc.FieldError with the key as its field.
// Keys that say nothing are an error, too: an impairment that is none is left out.
func (k Keys) Validate() error {
	var errs []error
	switch {
	case k.Queue != 0 && k.Rate == 0:
		errs = append(errs, &qdisc.FieldError{Field: "queue", Value: qdisc.FormatDuration(k.Queue), Want: "a rate whose queue it bounds, such as 10mbit"})
	case k.Queue != 0 && k.Limit != 0:
		errs = append(errs, &qdisc.FieldError{Field: "queue", Value: qdisc.FormatDuration(k.Queue), Want: "either a queue or a limit"})
	}
	n := k.Netem()
	if n.IsZero() && len(errs) == 0 {
		errs = append(errs, &qdisc.FieldError{Why: "impairs nothing", Want: Keys{}.WantYAML()})
	}
	return errors.Join(append(errs, inKeys(n.Validate()))...)
}

// inKeys gives each *qdisc.FieldError of a Netem's validation the key of its field.
func inKeys(err error) error { return qdisc.Renamed(err, keyOf) }

// keyOf is the key of a field: "jitter" of "delay.jitter", "loss_gemodel" of
// "loss.gemodel.p".
func keyOf(field string) string {
	group, rest, below := strings.Cut(field, ".")
	rest, _, _ = strings.Cut(rest, ".")
	switch {
	case !below:
		return field
	case group == "rate", rest == "jitter", rest == "distribution" && group == "delay", rest == "gap":
		return rest
	case rest == "samples", group == "slot" && rest != "packets" && rest != "bytes":
		return group
	}
	return group + "_" + rest
}
