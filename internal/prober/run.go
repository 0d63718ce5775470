package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"netemd/internal/child"
	"netemd/probe"
)

const (
	// stopGrace is how long a child that was told to stop may take: a call ends
	// within 200 ms.
	stopGrace = 2 * time.Second
	// maxStderr is how much of a child's last words is kept.
	maxStderr = 4 << 10
	// silence is how long, beyond a call's budget, a child may say nothing.
	silence = 15 * time.Second
)

// Run runs the order in a child process inside the named namespace (empty: the
// own one) and returns its samples, ordered by Seq. report, which may be nil, is
// told after every call how many of how many are done.
//
// A child that says nothing for longer than a call may take is stopped, which is an
// error. When ctx ends, the child is told to stop, and after two seconds killed; Run
// returns the samples that it has with ctx's cause. The child also ends when this
// process does. A named namespace needs root.
func Run(ctx context.Context, namespace string, o Order, report func(done, count int)) ([]probe.Sample, error) {
	return run(ctx, namespace, childName, o, silence, report)
}

func run(ctx context.Context, namespace, name string, o Order, silence time.Duration, report func(done, count int)) ([]probe.Sample, error) {
	if err := o.Request.Validate(); err != nil {
		return nil, err
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	stderr, words, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = stderr.Close() }()
	p, err := child.Start(namespace, child.Options{Stderr: words}, name)
	_ = words.Close()
	if err != nil {
		return nil, fmt.Errorf("probe: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := o.Request.WithDefaults()
	limit := r.Timeout + max(r.Pace, 0) + silence
	quiet := time.AfterFunc(limit, func() { stop(fmt.Errorf("the probe's process said nothing for %v", limit)) })
	defer quiet.Stop()
	heard := func(done, count int) {
		quiet.Reset(limit)
		if report != nil {
			report(done, count)
		}
	}
	last := make(chan string, 1)
	go func() { last <- lastWords(stderr) }()

	stopped := context.AfterFunc(ctx, func() {
		_ = p.Stdin.Close()
		time.AfterFunc(stopGrace, func() { _ = p.Kill() })
	})
	defer stopped()
	orderErr := json.NewEncoder(p.Stdin).Encode(o)
	samples, ended, readErr := collect(p.Stdout, heard)
	if !ended || readErr != nil {
		_ = p.Kill() // it may still be running if its output was not understood
		_, _ = io.Copy(io.Discard, p.Stdout)
	}
	waitErr := p.Wait()
	slices.SortFunc(samples, func(a, b probe.Sample) int { return a.Seq - b.Seq })
	if ended && waitErr == nil && readErr == nil {
		return samples, nil
	}
	if err := context.Cause(ctx); err != nil {
		return samples, fmt.Errorf("probe: %w", err)
	}
	err = errors.Join(orderErr, readErr, waitErr)
	if w := <-last; w != "" {
		err = errors.Join(err, errors.New(w))
	}
	return samples, fmt.Errorf("probe child: ended after %d of %d calls: %w", len(samples), o.Request.WithDefaults().Count, err)
}

// collect reads a child's messages to the last one.
func collect(r io.Reader, heard func(done, count int)) (samples []probe.Sample, ended bool, err error) {
	dec := json.NewDecoder(r)
	for {
		var m message
		if err := dec.Decode(&m); err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("its output ended early")
			}
			return samples, false, err
		}
		if m.End {
			if m.Error != "" {
				err = errors.New(m.Error)
			}
			return samples, true, err
		}
		if m.Sample != nil {
			samples = append(samples, *m.Sample)
		}
		heard(m.Done, m.Count)
	}
}

// lastWords keeps the end of what a child says on its standard error.
func lastWords(r io.Reader) string {
	var kept []byte
	b := make([]byte, maxStderr)
	for {
		n, err := r.Read(b)
		kept = append(kept, b[:n]...)
		kept = kept[max(0, len(kept)-maxStderr):]
		if err != nil {
			return strings.TrimSpace(string(kept))
		}
	}
}
