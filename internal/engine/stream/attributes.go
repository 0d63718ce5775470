package stream

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// wireToxic is a toxic as Toxiproxy's API has it.
type wireToxic struct {
	Name   string `json:"name"`
	Type   string `json:"type"`
	Stream string `json:"stream"`
	// Toxicity is a share, 0..1; Toxiproxy keeps it in a float32.
	Toxicity   float64    `json:"toxicity"`
	Attributes attributes `json:"attributes"`
}

// attributes are those of all kinds together, in Toxiproxy's units, which differ
// by kind (toxics/*.go of v2.12.0). A field of another kind is nil.
type attributes struct {
	Latency       *int64 `json:"latency,omitempty"`        // ms
	Jitter        *int64 `json:"jitter,omitempty"`         // ms
	Timeout       *int64 `json:"timeout,omitempty"`        // ms
	Bytes         *int64 `json:"bytes,omitempty"`          // bytes
	Rate          *int64 `json:"rate,omitempty"`           // KB/s of 1000 bytes
	AverageSize   *int64 `json:"average_size,omitempty"`   // bytes
	SizeVariation *int64 `json:"size_variation,omitempty"` // bytes
	Delay         *int64 `json:"delay,omitempty"`          // us, but ms of slow_close

	// Of a drawn toxic, and in Inner those of its kind.
	Kind  string      `json:"kind,omitempty"`
	Key   string      `json:"key,omitempty"`
	Seed  uint64      `json:"seed,omitempty"`
	Share float64     `json:"share,omitempty"`
	Inner *attributes `json:"inner,omitempty"`
}

// toWire returns the toxics in the order in which Toxiproxy lists them (upstream
// first), and whether the proxy accepts connections at all.
func toWire(toxics []fault.Toxic) (ts []wireToxic, enabled bool) {
	enabled, ts = true, []wireToxic{}
	for _, t := range fault.NormalizeToxics(toxics) {
		if t.Kind == fault.Down {
			enabled = false
			continue
		}
		if w := encode(t); t.Seed != 0 && t.Toxicity < 100 {
			ts = append(ts, encodeDrawn(t, w)...)
		} else {
			ts = append(ts, w)
		}
	}
	return ts, enabled
}

// fromWire is the inverse of toWire: what toxics a proxy has in typed units, with
// all defaults written out, a Down first.
func fromWire(ts []wireToxic, enabled bool) []fault.Toxic {
	var toxics []fault.Toxic
	if !enabled {
		toxics = append(toxics, fault.Toxic{Kind: fault.Down})
	}
	for _, t := range ts {
		switch {
		case isLinger(t):
		case isDrawn(t):
			toxics = append(toxics, decodeDrawn(t))
		default:
			toxics = append(toxics, decode(t))
		}
	}
	return toxics
}

// encode expects a valid and normalized toxic that is not a Down.
func encode(t fault.Toxic) wireToxic {
	w := wireToxic{Name: t.Key(), Type: string(t.Kind), Stream: string(t.Stream), Toxicity: float64(t.Toxicity) / 100}
	a := &w.Attributes
	switch t.Kind {
	case fault.Latency:
		a.Latency, a.Jitter = new(t.Latency.Milliseconds()), new(t.Jitter.Milliseconds())
	case fault.Timeout, fault.ResetPeer:
		a.Timeout = new(t.Timeout.Milliseconds())
	case fault.LimitData:
		a.Bytes = new(int64(t.Bytes))
	case fault.Bandwidth:
		a.Rate = new(int64(t.Rate / 1000))
	case fault.Slicer:
		a.AverageSize, a.SizeVariation = new(int64(t.AverageSize)), new(int64(t.SizeVariation))
		a.Delay = new(t.Delay.Microseconds())
	case fault.SlowClose:
		a.Delay = new(t.Delay.Milliseconds())
	}
	return w
}

// decode keeps a kind that we do not know, without its attributes: somebody else's
// toxic is then seen as one more than was asked for.
func decode(w wireToxic) fault.Toxic {
	t := fault.Toxic{
		Kind: fault.ToxicKind(w.Type), Stream: fault.StreamDirection(w.Stream),
		// A float32 came back: 0.07 is 7 %, not 7.0000000298 %.
		Toxicity: qdisc.Percent(math.Round(w.Toxicity*1e6) / 1e4),
	}
	a := w.Attributes
	switch t.Kind {
	case fault.Latency:
		t.Latency, t.Jitter = times(a.Latency, time.Millisecond), times(a.Jitter, time.Millisecond)
	case fault.Timeout, fault.ResetPeer:
		t.Timeout = times(a.Timeout, time.Millisecond)
	case fault.LimitData:
		t.Bytes = qdisc.Bytes(number(a.Bytes))
	case fault.Bandwidth:
		t.Rate = qdisc.Rate(number(a.Rate)) * 1000
	case fault.Slicer:
		t.AverageSize, t.SizeVariation = qdisc.Bytes(number(a.AverageSize)), qdisc.Bytes(number(a.SizeVariation))
		t.Delay = times(a.Delay, time.Microsecond)
	case fault.SlowClose:
		t.Delay = times(a.Delay, time.Millisecond)
	}
	return t
}

func number(p *int64) int64 {
	if p == nil {
		return 0
	}
	return *p
}

func times(p *int64, unit time.Duration) time.Duration { return time.Duration(number(p)) * unit }

// mark begins the names of the toxics of faults, which clients of the API leave alone.
const mark = "netemd-fault"

// order is the body of a PUT of /netemd/fault: the whole state of the proxy.
type order struct {
	// DeadlineUnixNS ends the fault; 0 only for a proxy without one.
	DeadlineUnixNS int64             `json:"deadline_unix_ns"`
	Enabled        bool              `json:"enabled"`
	Toxics         []json.RawMessage `json:"toxics"`
}

// outcome is the answer to an order.
type outcome struct {
	// Goroutines are what the connections that were cut left behind in the process,
	// and what it always has; 0 when none were cut.
	Goroutines int `json:"goroutines"`
}

func newOrder(toxics []fault.Toxic, deadline time.Time) (order, error) {
	ts, enabled := toWire(toxics)
	o := order{Enabled: enabled, Toxics: []json.RawMessage{}}
	if len(toxics) > 0 {
		o.DeadlineUnixNS = deadline.UnixNano()
	}
	for _, t := range ts {
		t.Name = mark + "-" + t.Name
		b, err := json.Marshal(t)
		if err != nil {
			return order{}, fmt.Errorf("encode toxic %s: %w", t.Name, err)
		}
		o.Toxics = append(o.Toxics, b)
	}
	return o, nil
}
