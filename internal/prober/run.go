package prober

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"netemd/internal/child"
	"netemd/probe"
)

const (
	// stopGrace is how long a child that was told to stop may take: lastCalls, and what
	// a busy machine takes to write the rest.
	stopGrace = 3 * time.Second
	// maxStderr is how much of a child's last words is kept.
	maxStderr = 4 << 10
	// mute is how long a child may say nothing: it says every second that it lives.
	mute = 30 * time.Second
)

// validate refuses what a child would refuse.
func (o Order) validate() error {
	if err := o.Request.Validate(); err != nil {
		return err
	}
	if kind := o.Request.WithDefaults().Kind; kinds[kind] == nil {
		return fmt.Errorf("probe: kind %s: %w", kind, errors.ErrUnsupported)
	}
	_, err := o.underPolicy(nil)
	return err
}

// run runs the order in a child process inside the named namespace (empty: the own one)
// and tells each of its samples as they come, in the order in which they ended, and of
// nothing when the child only says that it lives. It returns what the child said at its
// end.
//
// A child that is silent is stopped, which is an error. When ctx ends, the child is
// told to stop, and after stopGrace killed; run returns ctx's cause. The child also ends
// when this process does. A named namespace needs root.
func run(ctx context.Context, namespace, name string, o Order, mute time.Duration, each func([]probe.Sample)) (end, error) {
	if err := o.validate(); err != nil {
		return end{}, err
	}
	if err := context.Cause(ctx); err != nil {
		return end{}, err
	}
	stderr, words, err := os.Pipe()
	if err != nil {
		return end{}, fmt.Errorf("probe: %w", err)
	}
	defer func() { _ = stderr.Close() }()
	p, err := child.Start(namespace, child.Options{Stderr: words}, name)
	_ = words.Close()
	if err != nil {
		return end{}, fmt.Errorf("probe: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	quiet := time.AfterFunc(mute, func() { stop(fmt.Errorf("the probe's process said nothing for %v", mute)) })
	defer quiet.Stop()
	last := make(chan string, 1)
	go func() { last <- lastWords(stderr) }()
	stopped := context.AfterFunc(ctx, func() {
		_ = p.Stdin.Close()
		time.AfterFunc(stopGrace, func() { _ = p.Kill() })
	})
	defer stopped()

	orderErr := json.NewEncoder(p.Stdin).Encode(o)
	count := 0
	ended, readErr := read(p.Stdout, func(samples []probe.Sample) {
		quiet.Stop() // it is not the child that is slow meanwhile
		count += len(samples)
		each(samples)
		quiet.Reset(mute)
	})
	if ended == nil {
		_ = p.Kill() // it may still be running if its output was not understood
		_, _ = io.Copy(io.Discard, p.Stdout)
		ended = &end{}
	}
	waitErr := p.Wait()
	if err := context.Cause(ctx); err != nil {
		return *ended, fmt.Errorf("probe: %w", err)
	}
	err = errors.Join(orderErr, readErr, waitErr)
	if err == nil && ended.Error == "" {
		return *ended, nil
	}
	if w := <-last; w != "" {
		err = errors.Join(err, errors.New(w))
	}
	switch {
	case ended.Unsupported:
		return *ended, fmt.Errorf("probe: %s: %w", ended.Error, errors.ErrUnsupported)
	case ended.Error != "":
		err = errors.Join(errors.New(ended.Error), err)
	}
	return *ended, fmt.Errorf("probe child: ended early, after %d calls: %w", count, err)
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
