package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/policyfile"
	"netemd/internal/prober"
	"netemd/internal/wire"
	"netemd/probe"
)

// sampleBytes is how much of the samples' lines is in one message, and a line more: well
// below the 4 MiB that gRPC's clients take by default.
const sampleBytes = 256 << 10

type probesServer struct {
	netemv1.UnimplementedProbesServer
	a *Agent
}

// Run streams samples as their calls become final. What was measured until an error is
// sent before it, so that a measurement that broke off is not lost. A client that goes away
// ends the run.
func (s probesServer) Run(m *netemv1.ProbeRequest, stream grpc.ServerStreamingServer[netemv1.ProbeMessage]) error {
	r := wire.ProbeRequestOf(m)
	c, err := policyOf(m.GetPolicy())
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(stream.Context())
	defer stop(nil)
	who := owner(ctx)
	defer s.a.probing.name(probeRun{who, m.GetId()}, r.Target, stop)()

	offset := time.Duration(time.Now().UnixNano() - probe.Now())
	// one message at a time: the prober reports and hands out samples one after the other
	send := func(m *netemv1.ProbeMessage) {
		if err := stream.Send(m); err != nil {
			stop(fmt.Errorf("probe: %w", err))
		}
	}
	c.Report = func(p probe.Progress) { send(wire.ProbeProgress(p, offset)) }
	c.Keep = -1
	if m.GetSamples() {
		c.Sink = func(samples []probe.Sample) {
			if err := sendSamples(samples, offset, send); err != nil {
				stop(err)
			}
		}
	}
	result, runErr := s.a.measure(ctx, who, r, c)
	stopped := context.Cause(ctx)
	if errors.Is(runErr, prober.ErrTelling) {
		return runErr // a message is still on its way, and a stream takes one at a time
	}
	if runErr != nil && result.Summary.Load == nil {
		return runErr // nothing was begun
	}
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("probe result: %w", err)
	}
	count := int32(result.Summary.Count)
	if err := stream.Send(&netemv1.ProbeMessage{Done: count, Count: count, ResultJson: text, UnixOffsetNs: int64(offset)}); err != nil {
		return err
	}
	if stopped == errProbeStopped { //nolint:errorlint // the cause itself, which nothing wraps
		return nil
	}
	return runErr
}

// Stop ends a run of the caller's.
func (s probesServer) Stop(ctx context.Context, m *netemv1.StopProbeRequest) (*netemv1.StopProbeResponse, error) {
	return &netemv1.StopProbeResponse{Running: s.a.probing.stop(owner(ctx), m.GetId())}, nil
}

// policyOf begins an order with the policy of a request.
func policyOf(m *netemv1.PolicyText) (prober.Config, error) {
	var c prober.Config
	if m == nil {
		return c, nil
	}
	p, err := policyfile.Parse(m.GetFile(), m.GetYaml())
	if err != nil {
		return c, err
	}
	c.Order.Policy = &p
	return c, nil
}

// sendSamples sends samples as lines of JSON.
func sendSamples(samples []probe.Sample, offset time.Duration, send func(*netemv1.ProbeMessage)) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for i := range samples {
		if err := e.Encode(&samples[i]); err != nil {
			return fmt.Errorf("probe: sample %d: %w", samples[i].Seq, err)
		}
		if b.Len() >= sampleBytes || i == len(samples)-1 {
			send(&netemv1.ProbeMessage{SamplesJsonl: bytes.Clone(b.Bytes()), UnixOffsetNs: int64(offset)})
			b.Reset()
		}
	}
	return nil
}
