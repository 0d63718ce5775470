package stream

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"

	"github.com/Shopify/toxiproxy/v2/toxics"
)

// maxAttribute is the most that a toxic's attribute may be here: twice as much is still far
// from the end of an int64, which Toxiproxy's own arithmetic does not look at.
const maxAttribute = math.MaxInt64 / 1000

// sound refuses what Toxiproxy takes and then ends with, in the middle of a connection, and with
// it the process and every other proxy of it (2.12.0: bandwidth and slicer).
func sound(t toxics.Toxic) error {
	type field struct {
		name        string
		value, from int64
	}
	var fields []field
	switch t := t.(type) {
	case *toxics.BandwidthToxic:
		fields = []field{{"rate", t.Rate, 0}}
	case *toxics.LimitDataToxic:
		fields = []field{{"bytes", t.Bytes, 0}}
	case *toxics.LatencyToxic:
		fields = []field{{"latency", t.Latency, 0}, {"jitter", t.Jitter, 0}}
	case *toxics.TimeoutToxic:
		fields = []field{{"timeout", t.Timeout, 0}}
	case *toxics.ResetToxic:
		fields = []field{{"timeout", t.Timeout, 0}}
	case *toxics.SlowCloseToxic:
		fields = []field{{"delay", t.Delay, 0}}
	case *toxics.SlicerToxic:
		if t.SizeVariation >= t.AverageSize && t.AverageSize > 0 && t.SizeVariation > 0 {
			return fmt.Errorf("size_variation %d: want less than average_size, which is %d", t.SizeVariation, t.AverageSize)
		}
		fields = []field{{"average_size", int64(t.AverageSize), 1}, {"size_variation", int64(t.SizeVariation), 0}, {"delay", int64(t.Delay), 0}}
	case *drawn:
		return sound(t.Inner)
	case *drawnBuffered:
		return sound(t.Inner)
	}
	for _, f := range fields {
		if f.value < f.from || f.value > maxAttribute {
			return fmt.Errorf("%s %d: want %d to %d", f.name, f.value, f.from, int64(maxAttribute))
		}
	}
	return nil
}

// wish is what a call would make of a toxic; nil where Toxiproxy itself has words for what is
// wrong. What it would take of a body before it comes to a mistake in it counts.
func (f *front) wish(r *http.Request, body []byte) (toxics.Toxic, error) {
	w := toxics.ToxicWrapper{}
	var now json.RawMessage
	if name := r.PathValue("toxic"); name != "" {
		before, err := f.snapshot(r.PathValue("proxy"))
		if err != nil {
			return nil, err
		}
		for _, text := range before.toxics {
			var is struct{ Name, Type string }
			if json.Unmarshal(text, &is) == nil && is.Name == name {
				w.Type, now = is.Type, text
			}
		}
	} else if json.Unmarshal(body, &struct {
		Type *string `json:"type"`
	}{&w.Type}) != nil {
		return nil, nil //nolint:nilnil // as the comment says
	}
	t := toxics.New(&w)
	for _, text := range []json.RawMessage{now, body} {
		if t != nil && text != nil {
			_ = json.Unmarshal(text, &struct {
				Attributes any `json:"attributes"`
			}{t})
		}
	}
	return t, nil
}

// unsound reports, with an answer, that a call about a toxic is not to be made.
func (f *front) unsound(w http.ResponseWriter, r *http.Request, body []byte) bool {
	t, err := f.wish(r, body)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "proxy control stuck: %v", err)
		return true
	}
	if err := sound(t); err != nil {
		refuse(w, http.StatusBadRequest, "bad request body: attributes: %v", err)
		return true
	}
	return false
}
