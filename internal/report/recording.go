package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"netemd/internal/experiment"
	"netemd/probe"
)

// The files of a probe's folder, beside ResultFile and SamplesFile.
const (
	MetricsFile     = "metrics.txt"
	TracesFile      = "otlp-traces.jsonl"
	OTLPMetricsFile = "otlp-metrics.jsonl"
	EventsFile      = "events.jsonl"
)

// ProbeResult is what a probe's document says.
type ProbeResult struct {
	probe.Summary
	// Kind is the probe's.
	Kind string `json:"kind"`
	// Policy is the client policy around the calls; empty: none.
	Policy string `json:"policy_name,omitempty"`
	// Interrupted says that the run was ended before its time.
	Interrupted bool `json:"interrupted,omitempty"`
}

// Recording writes a probe's samples to a folder as they come, so that what was
// measured is there whatever ends the run, and at the end the rest. Its memory does not
// grow with the run. It is not safe for concurrent use.
type Recording struct {
	dir      string
	layer    []byte
	samples  *os.File
	spans    *os.File
	tracer   *tracer
	tally    *tally
	recorder *probe.Recorder
	begun    bool
	err      error

	// mu guards what events come to.
	mu      sync.Mutex
	events  *os.File
	waiting untimed // or without a file
	offset  time.Duration
	windows windows
	ended   []span // of faults
	lost    error
}

// Record prepares a recording in a folder, which is made if it is missing, and tried. What
// another run left there stays until Begin.
func Record(dir string, r probe.Request) (*Recording, error) {
	r = r.WithDefaults()
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	layer, err := json.Marshal(r.Layer)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	return &Recording{dir: dir, layer: layer, tracer: newTracer(r), tally: newTally(r), recorder: probe.NewRecorder(r.Target, r.Layer, r.Threshold)}, nil
}

// Begin takes away what another run left in the folder under the same names, once: for when
// this one is known to be carried out. Add and Finish do it, too. An error is Finish's.
func (r *Recording) Begin() {
	if r.begun {
		return
	}
	r.begun = true
	for _, name := range []string{ResultFile, MetricsFile, OTLPMetricsFile} {
		if err := os.Remove(filepath.Join(r.dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			r.err = errors.Join(r.err, err)
		}
	}
	var err error
	if r.samples, err = os.Create(filepath.Join(r.dir, SamplesFile)); err != nil {
		r.err = errors.Join(r.err, err)
	}
	if r.spans, err = os.Create(filepath.Join(r.dir, TracesFile)); err != nil {
		r.err = errors.Join(r.err, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.events, err = os.Create(filepath.Join(r.dir, EventsFile)); err != nil {
		r.lost = err
	}
}

// AddEvent takes an event of a fault, and is safe beside all others. It is written when its
// time is known on the samples' clock, with the first of them at the latest.
func (r *Recording) AddEvent(e experiment.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = append(r.waiting, e)
	r.writeEvents(false)
}

// writeEvents writes those that wait; all, also those whose time is not known.
func (r *Recording) writeEvents(all bool) {
	if r.events == nil {
		return
	}
	r.waiting.settle(r.offset, all, func(e experiment.Event) {
		if r.lost == nil {
			r.lost = encodeLine(r.events, e)
		}
		if s := r.windows.add(e); s != nil {
			r.ended = append(r.ended, *s)
		}
	})
}

// Begun says that this run's files are in the folder, and no longer another's.
func (r *Recording) Begun() bool { return r.begun }

// Add takes samples as lines of JSON; offset makes Unix time of their clock. After an
// error, which Finish returns, nothing more is written, but all is still counted.
func (r *Recording) Add(lines []byte, offset time.Duration) error {
	r.Begin()
	r.mu.Lock()
	r.offset = offset
	r.writeEvents(false)
	r.mu.Unlock()
	var out bytes.Buffer
	var samples []probe.Sample
	for line := range bytes.Lines(lines) {
		var s probe.Sample
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("report: sample: %w", err)
		}
		fmt.Fprintf(&out, `{"layer":%s,%s`, r.layer, line[1:])
		samples = append(samples, s)
		r.recorder.Add(s)
		r.tally.add(s)
	}
	if r.err == nil {
		_, r.err = r.samples.Write(out.Bytes())
	}
	if r.err == nil && len(samples) > 0 {
		r.err = r.tracer.write(r.spans, samples, offset)
	}
	return nil
}

// Summary is of what was added, where the agent's own did not come.
func (r *Recording) Summary(evidence string) probe.Summary { return r.recorder.Summary(evidence) }

// Finish writes the rest, and closes the recording.
func (r *Recording) Finish(res ProbeResult, now time.Time) error {
	r.Begin()
	r.finishEvents(now)
	err := errors.Join(r.err, r.lost)
	for _, f := range []*os.File{r.samples, r.spans, r.events} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	if err != nil {
		err = fmt.Errorf("report: %w", err)
	}
	return errors.Join(err,
		write(r.dir, ResultFile, func(w io.Writer) error { return WriteJSON(w, "probe", res) }),
		write(r.dir, MetricsFile, func(w io.Writer) error { return r.tally.openMetrics(w, res) }),
		write(r.dir, OTLPMetricsFile, func(w io.Writer) error { return r.tally.otlp(w, res, now) }),
	)
}

// finishEvents writes the rest of the events, and the faults' spans.
func (r *Recording) finishEvents(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writeEvents(true)
	spans := append(r.ended, r.windows.rest(now)...)
	if r.err == nil && len(spans) > 0 {
		r.err = encodeLine(r.spans, tracesOf(resourceOf(r.tracer.request, nil), spans))
	}
}

// encodeLine writes a document in one line.
func encodeLine(w io.Writer, doc any) error {
	b := bufio.NewWriter(w)
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	return errors.Join(e.Encode(doc), b.Flush())
}
