package agent

import (
	"context"
	"os"
	"runtime"

	"google.golang.org/grpc"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/lab"
	"netemd/internal/version"
	"netemd/internal/wire"
)

type targetsServer struct {
	netemv1.UnimplementedTargetsServer
	a *Agent
}

func (s targetsServer) List(ctx context.Context, _ *netemv1.ListTargetsRequest) (*netemv1.ListTargetsResponse, error) {
	ts, err := s.a.targets(ctx)
	if err != nil {
		return nil, err
	}
	m := &netemv1.ListTargetsResponse{}
	for _, t := range ts {
		m.Targets = append(m.Targets, wire.Target(t))
	}
	return m, nil
}

func (s targetsServer) Resolve(ctx context.Context, r *netemv1.ResolveTargetRequest) (*netemv1.Target, error) {
	if err := s.a.oneMeant(ctx, r.GetName()); err != nil {
		return nil, err
	}
	t, err := s.a.resolve(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	t.Engines = s.a.enginePlacements(t)
	return wire.Target(t), nil
}

func (s targetsServer) Add(ctx context.Context, r *netemv1.AddTargetRequest) (*netemv1.Target, error) {
	d, err := wire.DefinitionOf(r.GetDefinition())
	if err != nil {
		return nil, err
	}
	t, err := s.a.addTarget(ctx, d)
	if err != nil {
		return nil, err
	}
	return wire.Target(t), nil
}

func (s targetsServer) Remove(ctx context.Context, r *netemv1.RemoveTargetRequest) (*netemv1.RemoveTargetResponse, error) {
	cleared, err := s.a.removeTarget(ctx, r.GetName(), r.GetForce())
	if err != nil {
		return nil, err
	}
	return &netemv1.RemoveTargetResponse{Cleared: wire.Faults(cleared)}, nil
}

type labsServer struct {
	netemv1.UnimplementedLabsServer
	a *Agent
}

func (s labsServer) Up(r *netemv1.LabUpRequest, stream grpc.ServerStreamingServer[netemv1.LabProgress]) error {
	def, by, err := s.asked(stream.Context(), r)
	if err != nil {
		return err
	}
	info, err := s.a.labUp(stream.Context(), def, by, steps(stream))
	if err != nil {
		return err
	}
	return sendLab(stream, info, def)
}

// asked is the lab that a request asks for, and who asks.
func (s labsServer) asked(ctx context.Context, r *netemv1.LabUpRequest) (def lab.Definition, by lab.Identity, err error) {
	if def, err = wire.LabUpRequestOf(r).Definition(); err != nil {
		return def, by, err
	}
	by, err = s.a.labIdentity(ctx, def)
	return def, by, err
}

// labSender is the agent's end of the stream of a lab that is made.
type labSender interface {
	Send(*netemv1.LabProgress) error
}

// steps tells the steps of a lab's making.
func steps(to labSender) func(step string) {
	return func(step string) {
		_ = to.Send(&netemv1.LabProgress{Step: step}) // a client that is gone ends the context
	}
}

// sendLab tells that a lab is up.
func sendLab(to labSender, info lab.Info, def lab.Definition) error {
	m, err := labMessage(info, def)
	if err != nil {
		return err
	}
	return to.Send(&netemv1.LabProgress{Lab: m})
}

func (s labsServer) Down(ctx context.Context, r *netemv1.LabDownRequest) (*netemv1.LabDownResponse, error) {
	existed, err := s.a.labDown(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return &netemv1.LabDownResponse{Existed: existed}, nil
}

func (s labsServer) List(ctx context.Context, _ *netemv1.ListLabsRequest) (*netemv1.ListLabsResponse, error) {
	infos, err := s.a.labs.List(ctx)
	if err != nil {
		return nil, err
	}
	m := &netemv1.ListLabsResponse{}
	for _, i := range infos {
		m.Labs = append(m.Labs, wire.Lab(i))
	}
	return m, nil
}

func (s labsServer) Get(ctx context.Context, r *netemv1.GetLabRequest) (*netemv1.Lab, error) {
	// Who broke off the making of a lab asks what is left of it.
	if err := s.a.places.undone(ctx, r.GetName()); err != nil {
		return nil, err
	}
	info, err := s.a.labs.Get(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	def, err := s.a.labs.Definition(ctx, r.GetName())
	if err != nil {
		return nil, err
	}
	return labMessage(info, def)
}

func (s labsServer) Diff(ctx context.Context, r *netemv1.LabDiffRequest) (*netemv1.LabDiffResponse, error) {
	ask := wire.LabDiffRequestOf(r)
	def, err := ask.Definition()
	if ask.Text == nil {
		def, err = s.a.labs.Definition(ctx, ask.Name)
	}
	if err != nil {
		return nil, err
	}
	all, err := s.a.labs.Diff(ctx, def)
	if err != nil {
		return nil, err
	}
	return wire.LabDifferences(all), nil
}

func (s labsServer) Server(ctx context.Context, r *netemv1.ServerRequest) (*netemv1.ServerState, error) {
	key := r.GetLab() + "/" + r.GetService()
	text := r.Settings
	if text != nil && len(text) == 0 { // as the lab says
		var err error
		if text, err = s.a.labs.OwnSettings(key); err != nil {
			return nil, err
		}
	}
	if r.Settings != nil { // before: one that fails half-way is set back, too
		s.a.holds.note(r.GetLab(), r.GetService(), len(r.Settings) == 0)
	}
	state, err := s.a.labs.Server(ctx, key, text, r.GetReset_())
	if err != nil {
		return nil, err
	}
	return &netemv1.ServerState{Counters: state.Counters, Settings: []byte(state.Settings)}, nil
}

type systemServer struct {
	netemv1.UnimplementedSystemServer
	a *Agent
}

func (s systemServer) Features(ctx context.Context, _ *netemv1.FeaturesRequest) (*netemv1.FeaturesResponse, error) {
	return wire.Features(s.a.features), nil
}

func (s systemServer) Profiles(context.Context, *netemv1.ProfilesRequest) (*netemv1.ProfilesResponse, error) {
	return wire.Profiles(s.a.cfg.Settings.ProfileList()), nil
}

func (s systemServer) Version(context.Context, *netemv1.VersionRequest) (*netemv1.VersionResponse, error) {
	return &netemv1.VersionResponse{
		Version: version.String(), GoVersion: runtime.Version(), Kernel: s.a.features.Kernel,
		SchemaVersion: version.Schema, Pid: int32(os.Getpid()), StateDir: s.a.cfg.StateDir,
	}, nil
}
