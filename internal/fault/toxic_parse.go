package fault

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"netemd/qdisc"
)

// wantToxic is the form of a toxic in one text.
const wantToxic = "KIND with KEY=VALUE behind it, such as \"latency latency=300ms jitter=20ms\", and to, from or toxicity=30% if need be"

// ParseToxic reads one toxic: its kind, its fields as KEY=VALUE with units, and the
// direction, "upstream" or "to", "downstream" or "from". The error is a *qdisc.FieldError,
// or several.
func ParseToxic(text string) (Toxic, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return Toxic{}, &qdisc.FieldError{Field: "toxic", Value: text, Want: wantToxic}
	}
	t := Toxic{Kind: ToxicKind(words[0])}
	var errs []error
	seen := map[string]bool{}
	for _, w := range words[1:] {
		key, value, ok := strings.Cut(w, "=")
		key = strings.ReplaceAll(key, "-", "_")
		if !ok {
			key, value = "stream", w
		}
		if seen[key] {
			errs = append(errs, &qdisc.FieldError{Field: key, Value: value, Want: "each key once"})
		}
		seen[key] = true
		errs = append(errs, t.fill(key, value))
	}
	if err := errors.Join(errs...); err != nil {
		return t, err
	}
	return t, t.Validate()
}

// fill sets one field by its name.
func (t *Toxic) fill(key, value string) (err error) {
	var times = map[string]*time.Duration{"latency": &t.Latency, "jitter": &t.Jitter, "timeout": &t.Timeout, "delay": &t.Delay}
	var sizes = map[string]*qdisc.Bytes{"bytes": &t.Bytes, "average_size": &t.AverageSize, "size_variation": &t.SizeVariation}
	switch {
	case times[key] != nil:
		*times[key], err = qdisc.ParseDuration(value)
	case sizes[key] != nil:
		*sizes[key], err = qdisc.ParseBytes(value)
	case key == "rate":
		t.Rate, err = qdisc.ParseRate(value)
	case key == "toxicity":
		t.Toxicity, err = qdisc.ParsePercent(value)
		if err == nil && t.Toxicity == 0 {
			err = &qdisc.FieldError{Value: value, Want: "a share above 0%"}
		}
	case key == "seed":
		if t.Seed, err = strconv.ParseUint(value, 10, 64); err != nil || t.Seed == 0 {
			err = &qdisc.FieldError{Value: value, Want: "a number from 1 to 18446744073709551615"}
		}
	case key == "stream", key == "direction":
		t.Stream, err = ParseStream(value)
	default:
		return &qdisc.FieldError{Field: key, Value: value, Want: "one of latency, jitter, timeout, bytes, rate, average_size, size_variation, delay, toxicity, seed and stream"}
	}
	if bad, ok := errors.AsType[*qdisc.FieldError](err); ok {
		return &qdisc.FieldError{Field: key, Value: bad.Value, Want: bad.Want}
	}
	return err
}

// ParseStream reads a direction in Toxiproxy's words, or in those of packet faults: to the
// target is upstream. The error is a *qdisc.FieldError without a field.
func ParseStream(s string) (StreamDirection, error) {
	switch s {
	case string(Upstream), string(To):
		return Upstream, nil
	case string(Downstream), string(From):
		return Downstream, nil
	}
	return "", &qdisc.FieldError{Value: s, Want: "upstream or to (client to server), downstream or from (server to client)"}
}

// Direction is the stream in the words of packet faults: upstream is to the target.
func (s StreamDirection) Direction() Direction {
	if s == Upstream {
		return To
	}
	return From
}
