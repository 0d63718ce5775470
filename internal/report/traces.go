package report

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"

	"netemd/internal/experiment"
	"netemd/probe"
)

// writeTraces writes the spans of a run, by OTLP's file exporter: of each call, of its attempts
// below it, and of the faults' times beside them. The same run has the same ids each time.
func writeTraces(w io.Writer, r Run) error {
	for _, o := range r.Observations {
		if len(o.Samples) == 0 {
			continue
		}
		t := &tracer{request: r.request(o.Case)}
		copy(t.run[:], r.id(o.Case, o.Phase, fmt.Sprint(o.Repeat)))
		about := resourceOf(t.request, nil)
		about.Attributes = append(about.Attributes,
			text("netemd.experiment", r.Name), text("netemd.case", o.Case), text("netemd.phase", o.Phase), integer("netemd.repeat", int64(o.Repeat)))
		for part := range slices.Chunk(o.Samples, maxPosted) {
			var spans []span
			for i := range part {
				spans = t.append(spans, &part[i], o.Unix)
			}
			if err := encodeLine(w, tracesOf(about, spans)); err != nil {
				return err
			}
		}
	}
	var faults []span
	n := 0
	all := windows{ids: func(size int) string {
		n++
		return hex.EncodeToString(r.id("fault", fmt.Sprint(n))[:size])
	}}
	for _, h := range r.Events {
		if e, ok := h.fault(); ok {
			if s := all.add(e); s != nil {
				faults = append(faults, *s)
			}
		}
	}
	if faults = append(faults, all.rest(r.lastMoment())...); len(faults) == 0 {
		return nil
	}
	about := resourceOf(probe.Request{}, nil)
	about.Attributes = []attribute{text("service.name", "netemd"), text("netemd.experiment", r.Name)}
	return encodeLine(w, tracesOf(about, faults))
}

// id is one of 32 bytes that follows from the run and parts; its first bit is set, so that no
// part of it is an id of zeros.
func (r Run) id(parts ...string) []byte {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, r.Started.UnixNano()) // a hash takes all
	for _, p := range append([]string{r.Name, r.PlanSHA256}, parts...) {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	sum := h.Sum(nil)
	sum[0] |= 0x80
	return sum
}

// request is what the calls of a case were.
func (r Run) request(name string) probe.Request {
	for _, c := range r.Cases {
		if c.Name == name {
			return probe.Request{Kind: c.Probe, Target: c.Target, Layer: c.Layer}
		}
	}
	return probe.Request{}
}

// lastMoment is when the last thing happened that is known.
func (r Run) lastMoment() time.Time {
	last := r.Ended.UnixNano()
	if r.Ended.IsZero() {
		last = r.Started.UnixNano()
	}
	for _, h := range r.Events {
		last = max(last, h.UnixNS)
	}
	for _, o := range r.Observations {
		for _, s := range o.Samples {
			last = max(last, s.EndNS+int64(o.Unix))
		}
	}
	return time.Unix(0, last)
}

// CaseOf says what the calls of a case are.
func CaseOf(name string, r probe.Request, policy string) Case {
	if r.Target == "" {
		return Case{Name: name}
	}
	r = r.WithDefaults()
	return Case{Name: name, Probe: r.Kind, Target: r.Target, Layer: r.Layer, Policy: policy, Calls: experiment.CallWords(r)}
}

// Case says what the calls of a case are; without any, it has a name alone.
type Case struct {
	Name   string `json:"name"`
	Probe  string `json:"probe,omitempty"`
	Target string `json:"target,omitempty"`
	Layer  string `json:"layer,omitempty"`
	Policy string `json:"policy_name,omitempty"`
	Calls  string `json:"calls,omitempty"`
}
