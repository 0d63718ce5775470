package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/verify"
	"netemd/internal/wire"
)

type faultsServer struct {
	netemv1.UnimplementedFaultsServer
	a *Agent
}

// answer translates a fault and its error.
func answer(f fault.Fault, err error) (*netemv1.Fault, error) {
	if err != nil {
		return nil, err
	}
	return wire.Fault(f), nil
}

func (s faultsServer) Apply(ctx context.Context, r *netemv1.ApplyRequest) (*netemv1.Fault, error) {
	spec, err := s.spec(ctx, r)
	if err != nil {
		return nil, err
	}
	return answer(s.a.leases.Apply(ctx, spec))
}

func (s faultsServer) ApplyAll(ctx context.Context, r *netemv1.ApplyAllRequest) (*netemv1.ApplyAllResponse, error) {
	specs := make([]fault.Spec, len(r.GetFaults()))
	for i, one := range r.GetFaults() {
		var err error
		if specs[i], err = s.spec(ctx, one); err != nil {
			return nil, fault.Nth(i, err)
		}
	}
	made, err := s.a.leases.ApplyAll(ctx, specs)
	if err != nil {
		return nil, err
	}
	return &netemv1.ApplyAllResponse{Faults: wire.Faults(made)}, nil
}

// spec is what a request asks for, with what the agent knows of who asks.
func (s faultsServer) spec(ctx context.Context, r *netemv1.ApplyRequest) (fault.Spec, error) {
	spec, err := wire.ApplyOf(r)
	if err != nil {
		return spec, err
	}
	if _, err := parseSSH(spec.SSHConnection); err != nil {
		return spec, err
	}
	if spec.Outage != nil {
		if err := s.a.nameServices(&spec); err != nil {
			return spec, err
		}
	} else if spec.Selector == nil {
		if err := s.a.oneMeant(ctx, spec.Target); err != nil {
			return spec, err
		}
		if spec.Target, err = s.a.targetKey(ctx, spec.Target); err != nil {
			return spec, err
		}
	}
	spec.Owner, spec.OwnerKey = owner(ctx), ownerKey(ctx)
	spec.Repair = spec.Repair || s.a.cfg.Settings.Repair
	if peer, ok := peerOf(ctx); ok && peer.session != nil {
		spec.Process = peer.process()
		if spec.SSHConnection == "" {
			spec.SSHConnection = peer.session() // what sudo took away
		}
	}
	return spec, nil
}

func (s faultsServer) Change(ctx context.Context, r *netemv1.ChangeRequest) (*netemv1.Fault, error) {
	return answer(s.a.leases.Change(ctx, r.GetId(), ownerKey(ctx), r.GetHoldToken(), wire.PatchOf(r.GetPacket())))
}

func (s faultsServer) Get(ctx context.Context, r *netemv1.GetRequest) (*netemv1.Fault, error) {
	return answer(s.a.leases.Get(ctx, r.GetId()))
}

func (s faultsServer) List(ctx context.Context, _ *netemv1.ListRequest) (*netemv1.ListResponse, error) {
	return &netemv1.ListResponse{Faults: wire.Faults(s.a.leases.List(ctx))}, nil
}

func (s faultsServer) Renew(ctx context.Context, r *netemv1.RenewRequest) (*netemv1.Fault, error) {
	return answer(s.a.leases.Renew(ctx, r.GetId(), ownerKey(ctx), time.Duration(r.GetTtlNs())))
}

func (s faultsServer) Clear(ctx context.Context, r *netemv1.ClearRequest) (*netemv1.ClearResponse, error) {
	sel, err := wire.SelectorOf(r)
	if err != nil {
		return nil, err
	}
	// One that has vanished can still have faults, which are lost.
	if sel.Target != "" {
		name := sel.Target
		if sel.Target, err = s.a.targetKey(ctx, name); err != nil {
			return nil, err
		}
		if key, err := s.a.labs.FindService(name); err == nil && len(s.a.leases.Named(sel)) == 0 {
			sel.Target, name = key, ""
		}
		if name != "" && len(s.a.leases.Named(sel)) == 0 {
			if _, err := s.a.resolve(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	if err := checkDevice(r.GetDevice()); err != nil {
		return nil, err
	}
	var noDevice error // one that went may still have had faults
	if d := r.GetDevice(); d != nil {
		var t target.Target
		t, noDevice = target.Resolve(ctx, target.Selector{Namespace: d.GetNamespace(), Device: d.GetDevice()}, nil)
		sel.Cookie, sel.Index = t.To.Cookie, t.To.Index
		if errors.Is(noDevice, errors.ErrUnsupported) {
			noDevice = nil // it is there, and can have none
		}
	}
	cleared, err := s.clear(ctx, sel)
	if err == nil && len(cleared) == 0 {
		err = noDevice
	}
	if err != nil {
		return nil, err
	}
	return &netemv1.ClearResponse{Cleared: wire.Faults(cleared)}, nil
}

// checkDevice refuses a device by which none can be meant.
func checkDevice(d *netemv1.DeviceName) error {
	if d == nil {
		return nil
	}
	return target.Selector{Namespace: d.GetNamespace(), Device: d.GetDevice()}.Validate()
}

// clear ends the faults that are named. Where several are, those that the caller may not
// clear are left alone.
func (s faultsServer) clear(ctx context.Context, sel fault.Selector) ([]fault.Fault, error) {
	who := clearingOwner(ctx)
	if peer, ok := peerOf(ctx); sel.ID != "" || ok && s.a.policy.Unrestricted(peer.access()) {
		return s.a.leases.Clear(ctx, sel, who)
	}
	var cleared []fault.Fault
	var errs []error
	for _, f := range s.a.leases.Named(sel) {
		if f.Spec.Whose() != who || !s.a.mayClear(ctx, f.Spec) {
			continue
		}
		ended, err := s.a.leases.Clear(ctx, fault.Selector{ID: f.ID}, who)
		cleared, errs = append(cleared, ended...), append(errs, err)
	}
	return cleared, errors.Join(errs...)
}

func (s faultsServer) Watch(r *netemv1.WatchRequest, stream grpc.ServerStreamingServer[netemv1.Event]) error {
	after, life := r.GetAfter(), r.GetLife()
	if after == 0 && life == "" {
		after, life = s.a.leases.Now()
	}
	if err := stream.SendHeader(nil); err != nil { // from here on nothing is missed
		return err
	}
	return s.a.leases.Watch(stream.Context(), after, life, func(e fault.Event) error { return stream.Send(wire.Event(e)) })
}

func (s faultsServer) Verify(r *netemv1.VerifyRequest, stream grpc.ServerStreamingServer[netemv1.VerifyMessage]) error {
	o := verify.Options{Packets: int(r.GetPackets()), Rate: int(r.GetPacketsPerSecond())}
	var last time.Time
	told := -1
	result, err := s.a.verify(stream.Context(), r.GetId(), o, func(sent, packets int) {
		if sent == told || time.Since(last) < progressEvery && sent < packets {
			return
		}
		last, told = time.Now(), sent
		_ = stream.Send(&netemv1.VerifyMessage{Sent: int32(sent), Packets: int32(packets)}) // a client that is gone ends the context
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("verify result: %w", err)
	}
	total := 0
	for _, p := range result.Places {
		total += p.Sent
	}
	return stream.Send(&netemv1.VerifyMessage{Sent: int32(total), Packets: int32(total), ResultJson: text})
}

// progressEvery is how often the progress of a verification is told.
const progressEvery = 500 * time.Millisecond
