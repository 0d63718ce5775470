// Package client is the agent over gRPC: the domain's types go in and come out,
// and its errors match the same sentinels as in the agent.
package client

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/fidelity"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/internal/profile"
	"netemd/internal/target"
	"netemd/internal/wire"
	"netemd/qdisc"
)

// callTime bounds a call that has no deadline of its own and is answered once.
const callTime = 2 * time.Minute

// Client talks to one agent. It is safe for concurrent use. A call that waits for an
// agent which no longer answers ends with ErrUnreachable: over a unix socket within 2 s,
// over TCP, where seconds of silence may be a path that loses packets, after
// wire.ClientPing and wire.ClientPingTimeout.
type Client struct {
	at      Endpoint
	conn    *grpc.ClientConn
	pulse   *pulse // nil over TCP
	faults  netemv1.FaultsClient
	targets netemv1.TargetsClient
	labs    netemv1.LabsClient
	probes  netemv1.ProbesClient
	system  netemv1.SystemClient
}

// Close ends the connection.
func (c *Client) Close() error {
	err := c.conn.Close()
	if c.pulse != nil {
		c.pulse.close()
	}
	return err
}

// Endpoint is where the agent is.
func (c *Client) Endpoint() Endpoint { return c.at }

// err translates what a call returned; an agent that went away is ErrUnreachable.
func (c *Client) err(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, ErrUnreachable) {
		return err
	}
	switch status.Code(err) {
	case codes.Unavailable:
		return fmt.Errorf("%w: the connection to %s broke: %s", ErrUnreachable, c.at, status.Convert(err).Message())
	case codes.Canceled:
		return context.Canceled
	}
	err = wire.ErrorOf(err)
	if s, ok := status.FromError(err); ok { // gRPC's own, such as of a message that is too large
		return fmt.Errorf("agent at %s: %s", c.at, s.Message())
	}
	return err
}

// within bounds a call that is answered once.
func within(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the agent did not finish within %v: %w", limit, context.DeadlineExceeded))
}

// answer translates a fault and its error.
func (c *Client) answer(m *netemv1.Fault, err error) (fault.Fault, error) {
	if err != nil {
		return fault.Fault{}, c.err(err)
	}
	return wire.FaultOf(m)
}

// Apply makes a fault. A spec without a RequestID gets a random one.
func (c *Client) Apply(ctx context.Context, s fault.Spec) (fault.Fault, error) {
	if s.RequestID == "" {
		s.RequestID = rand.Text()
	}
	ctx, cancel := within(ctx, callTime+s.Wait)
	defer cancel()
	return c.answer(c.faults.Apply(ctx, wire.ApplyRequest(s)))
}

// ApplyAll makes several faults, all or none, in the order of specs. Those without a
// RequestID get a random one; none may Wait. The error names the first that was refused:
// "faults[17].loss".
func (c *Client) ApplyAll(ctx context.Context, specs []fault.Spec) ([]fault.Fault, error) {
	specs = slices.Clone(specs)
	for i := range specs {
		if specs[i].RequestID == "" {
			specs[i].RequestID = rand.Text()
		}
	}
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.faults.ApplyAll(ctx, wire.ApplyAllRequest(specs))
	if err != nil {
		return nil, c.err(err)
	}
	return wire.FaultsOf(m.GetFaults())
}

// Change alters a packet fault in place.
func (c *Client) Change(ctx context.Context, id string, p qdisc.Patch) (fault.Fault, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	return c.answer(c.faults.Change(ctx, &netemv1.ChangeRequest{Id: id, Packet: wire.Patch(p)}))
}

// Get returns one fault.
func (c *Client) Get(ctx context.Context, id string) (fault.Fault, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	return c.answer(c.faults.Get(ctx, &netemv1.GetRequest{Id: id}))
}

// List returns all faults, oldest first.
func (c *Client) List(ctx context.Context) ([]fault.Fault, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.faults.List(ctx, &netemv1.ListRequest{})
	if err != nil {
		return nil, c.err(err)
	}
	return wire.FaultsOf(m.GetFaults())
}

// Renew gives a fault ttl from now; 0 means its own.
func (c *Client) Renew(ctx context.Context, id string, ttl time.Duration) (fault.Fault, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	return c.answer(c.faults.Renew(ctx, &netemv1.RenewRequest{Id: id, TtlNs: int64(ttl)}))
}

// Clear ends the faults that s names and returns them.
func (c *Client) Clear(ctx context.Context, s fault.Selector) ([]fault.Fault, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.faults.Clear(ctx, wire.Selector(s))
	if err != nil {
		return nil, c.err(err)
	}
	return wire.FaultsOf(m.GetCleared())
}

// Verify sends numbered packets through a packet fault and returns what arrived beside
// what was asked for. progress may be nil.
func (c *Client) Verify(ctx context.Context, id string, o fidelity.Options, progress func(sent, packets int)) (fidelity.Result, error) {
	stream, err := c.faults.Verify(ctx, &netemv1.VerifyRequest{Id: id, Packets: int32(o.Packets), PacketsPerSecond: int32(o.Rate)})
	if err != nil {
		return fidelity.Result{}, c.err(err)
	}
	var result fidelity.Result
	err = each(c, stream.Recv, func(m *netemv1.VerifyMessage) error {
		if progress != nil {
			progress(int(m.GetSent()), int(m.GetPackets()))
		}
		if len(m.GetResultJson()) > 0 {
			return json.Unmarshal(m.GetResultJson(), &result)
		}
		return nil
	})
	if err == nil && result.Verdict == "" {
		err = fmt.Errorf("verify %s: the agent ended without a result", id)
	}
	return result, err
}

// Watch calls f for each event until ctx ends: from now on, or with a life, those after
// the event of that life which has the number. The error matches fault.ErrMissed when
// some of them are no longer known, and ErrUnreachable when the agent goes; ErrStopped
// when it said so by ending the watch.
func (c *Client) Watch(ctx context.Context, after uint64, life string, f func(fault.Event)) error {
	return c.WatchFrom(ctx, after, life, nil, f)
}

// WatchFrom is Watch that calls begun, if it is not nil, once every event from then on comes.
func (c *Client) WatchFrom(ctx context.Context, after uint64, life string, begun func(), f func(fault.Event)) error {
	stream, err := c.faults.Watch(ctx, &netemv1.WatchRequest{After: after, Life: life})
	if err != nil {
		return c.err(err)
	}
	if begun != nil {
		if _, err := stream.Header(); err != nil {
			return c.err(err)
		}
		begun()
	}
	err = each(c, stream.Recv, func(m *netemv1.Event) error {
		e, err := wire.EventOf(m)
		if err == nil {
			f(e)
		}
		return err
	})
	if err == nil {
		return fmt.Errorf("%w: %s", ErrStopped, c.at)
	}
	return err
}

// each reads a stream to its end.
func each[M any](c *Client, recv func() (M, error), f func(M) error) error {
	for {
		m, err := recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return c.err(err)
		}
		if err := f(m); err != nil {
			return err
		}
	}
}

// Targets returns all targets.
func (c *Client) Targets(ctx context.Context) ([]target.Target, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.targets.List(ctx, &netemv1.ListTargetsRequest{})
	if err != nil {
		return nil, c.err(err)
	}
	ts := make([]target.Target, len(m.GetTargets()))
	for i, t := range m.GetTargets() {
		ts[i] = wire.TargetOf(t)
	}
	return ts, nil
}

// Resolve says where a target's packets pass now.
func (c *Client) Resolve(ctx context.Context, name string) (target.Target, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.targets.Resolve(ctx, &netemv1.ResolveTargetRequest{Name: name})
	if err != nil {
		return target.Target{}, c.err(err)
	}
	return wire.TargetOf(m), nil
}

// AddTarget gives what d says its name, and returns where it is now.
func (c *Client) AddTarget(ctx context.Context, d target.Definition) (target.Target, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.targets.Add(ctx, &netemv1.AddTargetRequest{Definition: wire.Definition(d)})
	if err != nil {
		return target.Target{}, c.err(err)
	}
	return wire.TargetOf(m), nil
}

// RemoveTarget takes a name away that AddTarget gave, and returns the faults that force
// cleared for it.
func (c *Client) RemoveTarget(ctx context.Context, name string, force bool) ([]fault.Fault, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.targets.Remove(ctx, &netemv1.RemoveTargetRequest{Name: name, Force: force})
	if err != nil {
		return nil, c.err(err)
	}
	return wire.FaultsOf(m.GetCleared())
}

// LabUp makes a lab and tells each step. Making one that is up with the same definition
// changes nothing; with another one the error is lab.ErrConflict. When ctx ends, it returns
// after the agent has undone what it made, or with an error that says what stays.
func (c *Client) LabUp(ctx context.Context, r labfile.Request, progress func(step string)) (lab.Info, error) {
	stream, err := c.labs.Up(ctx, wire.LabUpRequest(r))
	if err != nil {
		return lab.Info{}, c.err(err)
	}
	var info lab.Info
	err = each(c, stream.Recv, func(m *netemv1.LabProgress) error {
		if m.GetStep() != "" && progress != nil {
			progress(m.GetStep())
		}
		if m.GetLab() != nil {
			info = wire.LabOf(m.GetLab())
		}
		return nil
	})
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, c.undone(ctx, r))
	}
	return info, err
}

// undone waits until the agent has undone a lab that was broken off.
func (c *Client) undone(ctx context.Context, r labfile.Request) error {
	def, err := r.Definition()
	if err != nil {
		return nil // then nothing was made
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	switch _, err := c.labs.Get(ctx, &netemv1.GetLabRequest{Name: def.Name}); {
	case err == nil:
		return fmt.Errorf("lab %s is there: it was complete already, or what is left of it could not be removed", def.Name)
	case errors.Is(c.err(err), lab.ErrUnknown):
		return nil
	default:
		return fmt.Errorf("lab %s: it is not known whether it is undone: %w", def.Name, c.err(err))
	}
}

// LabDown takes a lab down and reports whether there was one.
func (c *Client) LabDown(ctx context.Context, name string) (bool, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.labs.Down(ctx, &netemv1.LabDownRequest{Name: name})
	return m.GetExisted(), c.err(err)
}

// Lab returns a lab that is up, and its definition as a text that labfile.Parse reads; the
// error is lab.ErrUnknown for another one.
func (c *Client) Lab(ctx context.Context, name string) (lab.Info, []byte, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.labs.Get(ctx, &netemv1.GetLabRequest{Name: name})
	if err != nil {
		return lab.Info{}, nil, c.err(err)
	}
	return wire.LabOf(m), []byte(m.GetDefinition()), nil
}

// LabDiff says how a lab that is up differs from a text, or without one from its own
// definition, and from what the kernel has of it; the error is lab.ErrUnknown when it is not
// up.
func (c *Client) LabDiff(ctx context.Context, r labfile.Request) ([]lab.Difference, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.labs.Diff(ctx, wire.LabDiffRequest(r))
	if err != nil {
		return nil, c.err(err)
	}
	return wire.LabDifferencesOf(m), nil
}

// Labs returns the labs that are up.
func (c *Client) Labs(ctx context.Context) ([]lab.Info, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.labs.List(ctx, &netemv1.ListLabsRequest{})
	if err != nil {
		return nil, c.err(err)
	}
	ls := make([]lab.Info, len(m.GetLabs()))
	for i, l := range m.GetLabs() {
		ls[i] = wire.LabOf(l)
	}
	return ls, nil
}

// Profiles returns the impairments with a name that the agent's configuration has.
func (c *Client) Profiles(ctx context.Context) ([]profile.Profile, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.system.Profiles(ctx, &netemv1.ProfilesRequest{})
	if err != nil {
		return nil, c.err(err)
	}
	return wire.ProfilesOf(m), nil
}

// Features returns what the agent's kernel can do.
func (c *Client) Features(ctx context.Context) (feature.Report, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.system.Features(ctx, &netemv1.FeaturesRequest{})
	if err != nil {
		return feature.Report{}, c.err(err)
	}
	return wire.FeaturesOf(m)
}

// AgentVersion is the agent's build and machine.
type AgentVersion struct {
	Version, GoVersion, Kernel string
	SchemaVersion, PID         int
	StateDir                   string
}

// Version asks the agent for its own.
func (c *Client) Version(ctx context.Context) (AgentVersion, error) {
	ctx, cancel := within(ctx, callTime)
	defer cancel()
	m, err := c.system.Version(ctx, &netemv1.VersionRequest{})
	if err != nil {
		return AgentVersion{}, c.err(err)
	}
	return AgentVersion{
		Version: m.GetVersion(), GoVersion: m.GetGoVersion(), Kernel: m.GetKernel(),
		SchemaVersion: int(m.GetSchemaVersion()), PID: int(m.GetPid()), StateDir: m.GetStateDir(),
	}, nil
}
