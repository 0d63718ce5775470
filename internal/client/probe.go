package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/wire"
	"netemd/probe"
)

// probeEnd is how long a run that was stopped may take until its result is there: the
// child's grace, the evidence and what a busy machine takes beside.
const probeEnd = 15 * time.Second

// ProbeRun is what a run of a probe is to do beside its request.
type ProbeRun struct {
	// PolicyFile and PolicyYAML are a client policy, none if the text is empty; the file
	// is what it is called in messages.
	PolicyFile string
	PolicyYAML []byte
	// Progress, when set, is told a few times a second how far the run is.
	Progress func(probe.Progress)
	// Samples, when set, gets every sample as lines of JSON, as its call becomes final and
	// in that order. offset is what makes Unix time of the samples' clock. Its error ends
	// the run and is returned.
	Samples func(lines []byte, offset time.Duration) error
}

// Probe runs a probe in the agent and returns every sample.
func (c *Client) Probe(ctx context.Context, r probe.Request, progress func(done, count int)) (probe.Result, error) {
	samples := []probe.Sample{}
	result, err := c.RunProbe(ctx, r, ProbeRun{
		Progress: func(p probe.Progress) {
			if progress != nil {
				progress(p.Done, p.Count)
			}
		},
		Samples: func(lines []byte, _ time.Duration) error {
			return EachSample(lines, func(s probe.Sample) error {
				samples = append(samples, s)
				return nil
			})
		},
	})
	probe.BySeq(samples)
	result.Samples = samples
	return result, err
}

// EachSample reads lines of JSON.
func EachSample(lines []byte, f func(probe.Sample) error) error {
	for line := range bytes.Lines(lines) {
		var s probe.Sample
		if err := json.Unmarshal(line, &s); err != nil {
			return fmt.Errorf("probe: sample: %w", err)
		}
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

// RunProbe runs a probe in the agent. The result has no samples. When ctx ends, the agent
// is asked for what was measured until then, and waited for at most 15 s: there is a
// result then beside the error, which is ctx's cause. There is one, too, when the
// measurement broke off in the agent.
func (c *Client) RunProbe(ctx context.Context, r probe.Request, run ProbeRun) (probe.Result, error) {
	m := wire.ProbeRequest(r)
	m.Id, m.Samples = rand.Text(), run.Samples != nil
	if len(run.PolicyYAML) > 0 {
		m.Policy = &netemv1.PolicyText{File: run.PolicyFile, Yaml: run.PolicyYAML}
	}
	if err := context.Cause(ctx); err != nil {
		return probe.Result{}, err
	}
	// the stream outlives ctx by the time in which the result comes
	whole, end := context.WithCancelCause(context.WithoutCancel(ctx))
	defer end(nil)
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(probeEnd, func() { end(context.Cause(ctx)) })
		ask, cancel := within(whole, callTime)
		defer cancel()
		if answer, err := c.probes.Stop(ask, &netemv1.StopProbeRequest{Id: m.GetId()}); err != nil || !answer.GetRunning() {
			end(context.Cause(ctx)) // it has not begun, or has just ended
		}
	})
	defer stop()
	stream, err := c.probes.Run(whole, m)
	if err != nil {
		return probe.Result{}, c.err(err)
	}
	var result probe.Result
	err = each(c, stream.Recv, func(m *netemv1.ProbeMessage) error {
		if lines := m.GetSamplesJsonl(); len(lines) > 0 && run.Samples != nil {
			if err := run.Samples(lines, time.Duration(m.GetUnixOffsetNs())); err != nil {
				return err
			}
		} else if run.Progress != nil && len(m.GetResultJson()) == 0 {
			run.Progress(wire.ProbeProgressOf(m))
		}
		if len(m.GetResultJson()) > 0 {
			return json.Unmarshal(m.GetResultJson(), &result)
		}
		return nil
	})
	if cause := context.Cause(ctx); cause != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = cause
	}
	return result, err
}
