package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
)

// The files of an experiment's folder, beside ResultFile, SamplesFile, EventsFile, TracesFile
// and PageFile.
const (
	PlanFile        = "plan.yaml"
	JUnitFile       = "junit.xml"
	EnvironmentFile = "environment.json"
	IndexFile       = "index.html"
	// CommandFolder has what the user's command wrote.
	CommandFolder = "command"
)

// NotEnded is why a run is inconclusive of which nobody has written the end.
const NotEnded = "the run did not end; this is what was measured until then"

// noPhase labels the calls that are of no phase: those due while the faults were taken away.
const noPhase = "none"

// place is when in a plan something is.
type place struct {
	Case   string `json:"case"`
	Phase  string `json:"phase"`
	Repeat int    `json:"repeat"`
}

// observationLine is one line of an experiment's SamplesFile.
type observationLine struct {
	place
	probe.Sample
}

// Folder is that of an experiment that is run. It can be read at any time, whatever ends the
// run: the result is inconclusive until Finish, and replaced whole after each phase; calls and
// events are appended as they come. It is safe for concurrent use.
type Folder struct {
	dir   string
	words func(fault.Spec) string

	mu      sync.Mutex
	result  Experiment
	at      place // whose calls are made
	samples *os.File
	events  *os.File
	waiting untimed
	unix    time.Duration
	// mixed says that calls were written whose phase was not known.
	mixed bool
	err   error
}

// Create begins a folder, which is made if it is missing. The experiment is as far as it is
// known before it runs; words says a fault.
func Create(dir string, planText []byte, e Experiment, m Machine, words func(fault.Spec) string) (*Folder, error) {
	if err := Prepare(dir); err != nil {
		return nil, err
	}
	e.Verdict, e.Reason = kpi.Inconclusive, NotEnded
	e.KPIs = slices.Clone(e.KPIs)
	for i := range e.KPIs {
		e.KPIs[i].Verdict, e.KPIs[i].Reason = kpi.Inconclusive, "the run did not end"
	}
	f := &Folder{dir: dir, words: words, result: e}
	err := errors.Join(
		write(dir, PlanFile, func(w io.Writer) error { _, err := w.Write(planText); return err }),
		writeMachine(dir, m),
		f.writeResult(),
	)
	if err != nil {
		return nil, err
	}
	if f.samples, err = os.Create(filepath.Join(dir, SamplesFile)); err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if f.events, err = os.Create(filepath.Join(dir, EventsFile)); err != nil {
		return nil, errors.Join(fmt.Errorf("report: %w", err), f.samples.Close())
	}
	f.add(Happening{UnixNS: e.Started.UnixNano(), Kind: "run", Event: experiment.Began})
	return f, nil
}

// Happened takes a moment of the run.
func (f *Folder) Happened(m experiment.Moment) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.add(happened(m, f.words))
	switch {
	case m.Kind == experiment.MomentCalls:
		f.at = place{m.Case, m.Phase, m.Repeat}
	case m.Observed != nil:
		f.result.Phases = append(f.result.Phases, phaseOf(*m.Observed))
		f.err = errors.Join(f.err, f.writeResult())
	}
}

// AddSamples takes samples as they become final: the same as lines of JSON, too. unix makes Unix
// time of their clock.
func (f *Folder) AddSamples(lines []byte, samples []probe.Sample, unix time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unix = unix
	f.settle(false)
	label, err := json.Marshal(f.at)
	if err != nil {
		f.err = errors.Join(f.err, err)
		return
	}
	label[len(label)-1] = ',' // the sample's keys follow
	f.mixed = f.mixed || f.at.Phase == experiment.AllPhases
	var out bytes.Buffer
	for line := range bytes.Lines(lines) {
		out.Write(label)
		out.Write(line[1:])
	}
	if _, err := f.samples.Write(out.Bytes()); err != nil {
		f.err = errors.Join(f.err, err)
	}
	var told []Happening
	for _, s := range samples {
		told = append(told, ofPolicy(f.at, s, unix)...)
	}
	f.add(told...)
}

// AddEvent takes an event of a fault.
func (f *Folder) AddEvent(e experiment.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting = append(f.waiting, e)
	f.settle(false)
}

// settle writes the events of faults whose time is known; all, also the others.
func (f *Folder) settle(all bool) {
	f.waiting.settle(f.unix, all, func(e experiment.Event) { f.add(ofFault(e)) })
}

// add appends lines whole, in one write.
func (f *Folder) add(all ...Happening) {
	if len(all) == 0 || f.events == nil {
		return
	}
	var out bytes.Buffer
	for _, h := range all {
		f.err = errors.Join(f.err, encodeLine(&out, h))
	}
	if _, err := f.events.Write(out.Bytes()); err != nil {
		f.err = errors.Join(f.err, err)
	}
}

func (f *Folder) writeResult() error {
	return write(f.dir, ResultFile, func(w io.Writer) error { return WriteJSON(w, "run", Experiments{[]Experiment{f.result}}) })
}

// Finish writes what the run came to: the result, last of all, and what is made of it. Errors of
// earlier writes come with its own.
func (f *Folder) Finish(e Experiment, o experiment.Observations, m Machine) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle(true)
	e.Phases = Phases(o)
	f.result = e
	f.add(Happening{UnixNS: e.Ended.UnixNano(), Kind: "run", Event: experiment.Ended, Reason: e.Reason})
	err := errors.Join(f.err, f.samples.Close(), f.events.Close(), writeMachine(f.dir, m))
	if f.mixed {
		err = errors.Join(err, f.sortOut())
	}
	read, readErr := OpenEvents(f.dir)
	return errors.Join(err, readErr, derive(f.dir, Run{Experiment: e, Observations: o, Events: read}), f.writeResult())
}

// sortOut gives each call the phase that it turned out to be of.
func (f *Folder) sortOut() error {
	in, err := os.Open(filepath.Join(f.dir, SamplesFile))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer in.Close()
	return write(f.dir, SamplesFile, func(w io.Writer) error {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		return eachLine(in, func(line []byte) error {
			var l observationLine
			if err := json.Unmarshal(line, &l); err != nil {
				return err
			}
			if l.Phase == experiment.AllPhases {
				l.Phase = noPhase
				for _, p := range f.result.Phases {
					if p.has(l.place, due(l.Sample)) {
						l.Phase = p.Phase
						break
					}
				}
			}
			return e.Encode(l)
		})
	})
}

// derive writes what is made of the other files: the page, the file for CI, and the spans.
func derive(dir string, r Run) error {
	return errors.Join(
		write(dir, JUnitFile, func(w io.Writer) error { return WriteJUnit(w, []Experiment{r.Experiment}) }),
		write(dir, PageFile, func(w io.Writer) error { return WriteRunHTML(w, r.Experiment, r.Observations) }),
		write(dir, TracesFile, func(w io.Writer) error { return writeTraces(w, r) }),
	)
}
