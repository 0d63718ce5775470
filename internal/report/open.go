package report

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"netemd/internal/experiment"
	"netemd/internal/kpi"
	"netemd/probe"
)

// Run is what the folder of an experiment has.
type Run struct {
	Experiment
	Observations experiment.Observations
	Events       []Happening
	Machine      Machine
	// Plan is the plan that was run.
	Plan []byte
}

// errNoFolder says that there is no result of a run.
var errNoFolder = errors.New("has no result of 'netemctl run'")

// Open reads the folder of one experiment, or of several, of which each has a folder of its own
// below dir. It may still be written to. A last line that is torn is left out.
func Open(dir string) ([]Run, error) {
	all, err := openResult(dir)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(dir, PlanFile)); err == nil && len(all.Experiments) == 1 {
		r, err := openRun(dir, all.Experiments[0])
		return []Run{r}, err
	}
	var runs []Run
	for _, e := range all.Experiments {
		below := filepath.Join(dir, filepath.FromSlash(e.Name))
		one, err := openResult(below)
		if errors.Is(err, fs.ErrNotExist) { // it had not begun
			runs = append(runs, Run{Experiment: e})
			continue
		}
		if err == nil && len(one.Experiments) != 1 {
			err = fmt.Errorf("report: %s: %d experiments, want 1", filepath.Join(below, ResultFile), len(one.Experiments))
		}
		if err != nil {
			return nil, err
		}
		r, err := openRun(below, one.Experiments[0])
		if err != nil {
			return nil, err
		}
		runs = append(runs, r)
	}
	return runs, nil
}

// Several reports whether dir is of several experiments.
func Several(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, PlanFile))
	return err != nil
}

func openResult(dir string) (all Experiments, err error) {
	file := filepath.Join(dir, ResultFile)
	text, err := os.ReadFile(file)
	if err != nil {
		if info, statErr := os.Stat(dir); statErr == nil && info.IsDir() {
			return all, fmt.Errorf("report: %s %w: %w", dir, errNoFolder, err)
		}
		return all, fmt.Errorf("report: %w", err)
	}
	var head struct {
		Kind string          `json:"kind"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return all, fmt.Errorf("report: %s: %w", file, err)
	}
	if head.Kind != "run" {
		return all, fmt.Errorf("report: %s %w: it is of %q", dir, errNoFolder, head.Kind)
	}
	if err := json.Unmarshal(head.Data, &all); err != nil {
		return all, fmt.Errorf("report: %s: %w", file, err)
	}
	return all, nil
}

func openRun(dir string, e Experiment) (r Run, err error) {
	r.Experiment = e
	if r.Plan, err = os.ReadFile(filepath.Join(dir, PlanFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return r, fmt.Errorf("report: %w", err)
	}
	if r.Machine, err = openMachine(dir); err != nil {
		return r, err
	}
	if r.Events, err = OpenEvents(dir); err != nil {
		return r, err
	}
	r.Observations, err = openSamples(dir, e.Phases)
	return r, err
}

// OpenEvents reads EventsFile; a folder may be without one.
func OpenEvents(dir string) (all []Happening, err error) {
	err = readLines(dir, EventsFile, func(line []byte) error {
		var h Happening
		if err := json.Unmarshal(line, &h); err != nil {
			return err
		}
		all = append(all, h)
		return nil
	})
	return all, err
}

// openSamples gives each phase its calls. Calls of none are left out; those of a run of calls of
// which no phase was written down make one that counts for nothing.
func openSamples(dir string, phases []Phase) (experiment.Observations, error) {
	of := make([][]probe.Sample, len(phases))
	var broken []place
	rest := map[place][]probe.Sample{}
	err := readLines(dir, SamplesFile, func(line []byte) error {
		var l observationLine
		if err := json.Unmarshal(line, &l); err != nil {
			return err
		}
		at := due(l.Sample)
		if i := slices.IndexFunc(phases, func(p Phase) bool { return p.has(l.place, at) }); i >= 0 {
			of[i] = append(of[i], l.Sample)
			return nil
		}
		known := slices.ContainsFunc(phases, func(p Phase) bool {
			return p.Case == l.Case && p.Repeat == l.Repeat && (p.Phase == l.Phase || l.Phase == experiment.AllPhases)
		})
		if known || l.Phase == noPhase {
			return nil
		}
		if rest[l.place] == nil {
			broken = append(broken, l.place)
		}
		rest[l.place] = append(rest[l.place], l.Sample)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all experiment.Observations
	for i, p := range phases {
		slices.SortStableFunc(of[i], bySeq)
		all = append(all, p.observation(of[i]))
	}
	for _, at := range broken {
		all = append(all, brokenOff(at, rest[at]))
	}
	return all, nil
}

// brokenOff is a phase during which the run ended.
func brokenOff(at place, samples []probe.Sample) experiment.Observation {
	slices.SortStableFunc(samples, bySeq)
	p := Phase{Case: at.Case, Phase: at.Phase, Repeat: at.Repeat, BeginNS: due(samples[0]), EndNS: due(samples[len(samples)-1]) + 1, Void: "the run ended in it"}
	return p.observation(samples)
}

func bySeq(a, b probe.Sample) int { return cmp.Compare(a.Seq, b.Seq) }

// due is when a call was due; in a closed loop, when it began.
func due(s probe.Sample) int64 { return cmp.Or(s.DueNS, s.StartNS) }

// readLines reads a file of lines of JSON; a folder may be without it.
func readLines(dir, name string, f func(line []byte) error) error {
	in, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer in.Close()
	if err := eachLine(in, f); err != nil {
		return fmt.Errorf("report: %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}

// eachLine calls f with each whole line, without its end; what has none is torn, and left out.
func eachLine(in io.Reader, f func(line []byte) error) error {
	b := bufio.NewReaderSize(in, 1<<16)
	for n := 1; ; n++ {
		line, err := b.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f(line[:len(line)-1]); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
}

// Unended reports that nobody has written the run's end.
func (e Experiment) Unended() bool {
	return e.Ended.IsZero() && e.Verdict == kpi.Inconclusive && e.Reason == NotEnded
}

// Derive writes again what is made of a folder's other files: the page, the file for CI, and the
// spans.
func (r Run) Derive(dir string) error { return derive(dir, r) }
