package report

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"netemd/internal/experiment"
	"netemd/internal/version"
	"netemd/probe"
)

// Envelope is every JSON document's outer form.
type Envelope struct {
	SchemaVersion int    `json:"schemaVersion"`
	Kind          string `json:"kind"`
	Data          any    `json:"data"`
}

// WriteJSON writes data in its envelope, indented, with a final newline.
func WriteJSON(w io.Writer, kind string, data any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(Envelope{SchemaVersion: version.Schema, Kind: kind, Data: data})
}

// The files of a result's folder.
const (
	ResultFile  = "result.json"
	PageFile    = "report.html"
	SamplesFile = "samples.jsonl"
)

// Prepare makes dir if it is missing, and tries a file in it, so that a folder that
// cannot be written to is known before anything is measured.
func Prepare(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	f, err := os.CreateTemp(dir, ".try-*")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := errors.Join(f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// Earlier is when the result that is in dir was written; zero without one.
func Earlier(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, ResultFile))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// Comparison writes a comparison's files to dir, which is made if it is missing:
// the result, the page and every sample.
func Comparison(dir string, c experiment.Comparison) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if err := write(dir, ResultFile, func(w io.Writer) error { return WriteJSON(w, "compare", c) }); err != nil {
		return err
	}
	if err := write(dir, PageFile, func(w io.Writer) error { return WriteHTML(w, c) }); err != nil {
		return err
	}
	if err := write(dir, EventsFile, func(w io.Writer) error {
		for _, e := range c.Events {
			if err := encodeLine(w, e); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return write(dir, SamplesFile, func(w io.Writer) error {
		for _, row := range c.Rows {
			if err := writeSamples(w, row.Layer, row.Samples); err != nil {
				return err
			}
		}
		return nil
	})
}

// sampleLine is one line of SamplesFile.
type sampleLine struct {
	Layer string `json:"layer"`
	probe.Sample
}

func writeSamples(w io.Writer, layer string, samples []probe.Sample) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, s := range samples {
		if err := e.Encode(sampleLine{Layer: layer, Sample: s}); err != nil {
			return err
		}
	}
	return nil
}

// write replaces a file whole: a reader never sees half of it, also after a crash.
func write(dir, name string, fill func(io.Writer) error) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("report: %s: %w", name, err)
		}
	}()
	f, err := os.CreateTemp(dir, name+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(f.Name()) // The error before it is the one to tell.
		}
	}()
	b := bufio.NewWriter(f)
	if err = fill(b); err == nil {
		err = b.Flush()
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), filepath.Join(dir, name))
}
