package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/audit"
	"netemd/internal/config"
	"netemd/internal/engine/stream"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/journal"
	"netemd/internal/lab"
	"netemd/internal/lease"
	"netemd/internal/location"
	"netemd/internal/offload"
	"netemd/internal/telemetry"
	"netemd/internal/wire"
)

// What one connection may take: the calls in progress, the bytes of one's headers, and
// the time until it has said who it is.
const (
	maxStreams  = 256
	maxHeaders  = 16 << 10
	connectTime = 10 * time.Second
)

// lookEvery is how often the kernel is compared with the faults that are held, so
// that what is lost or changed behind our back is seen within 1 s.
const lookEvery = 500 * time.Millisecond

// Config says where the agent keeps its state and listens, and what it allows.
type Config struct {
	// StateDir and Socket are said again by Settings; they win.
	StateDir, Socket string
	// Settings are those of the configuration file; the zero value is config.Default.
	Settings config.Config
	// Connections are further TCP connections by which the agent is controlled, beside its
	// own listener's, which a fault may hit only when it is forced to; nil for none.
	Connections func() []Connection
	// Fresh says that no agent had this state folder, under this name, before the one that
	// is started, or cleaned up behind: then there is nothing of an earlier one to look for,
	// which takes a look into every namespace.
	Fresh bool
	Log   *slog.Logger
	// Ready is called when the agent answers, and Stopping when its end begins; nil: not.
	Ready, Stopping func()
}

// normalize fills in what was not said. The state folder gets the one name by which
// what an agent leaves is known.
func (c Config) normalize() (Config, error) {
	if c.Settings.StateDir == "" {
		c.Settings = config.Default()
	}
	if c.StateDir == "" {
		c.StateDir = c.Settings.StateDir
	}
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return c, fmt.Errorf("state folder: %w", err)
	}
	c.StateDir = dir
	if c.Socket == "" {
		c.Socket = c.Settings.Socket.Path
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(dir, "netemd.sock")
	}
	return c, nil
}

// Agent is one netemd.
type Agent struct {
	cfg      Config
	lock     *os.File
	features feature.Report
	engines  map[fault.Engine]lease.Engine
	labs     *lab.Manager
	places   labPlaces
	holds    labHolds
	leases   *lease.Manager
	offloads *offload.Keeper
	keeper   *stream.Keeper // of toxics on the Toxiproxies of others
	// definitions are the targets that are no lab's.
	definitions *definitions
	journal     *journal.Journal
	telemetry   *telemetry.Telemetry
	audit       *audit.Log // of what was done; refused of what was not
	refused     *audit.Log
	refusals    *audit.Refusals
	policy      *access.Policy
	tls         *tlsDoor
	// verifying are the verifications in progress, probing the probes, and followers the
	// streams that wait for what comes.
	verifying verifications
	probing   probing
	followers followers
	server    *grpc.Server
	health    *health.Server
	listeners []net.Listener
	stopping  chan struct{}
	closing   atomic.Bool // since Close began; its clears come before stopping
	// background are the goroutines that end with the leases.
	background sync.WaitGroup
	// ready says that the start succeeded: from then on what is here is this agent's
	// to take away.
	ready bool
}

// New prepares an agent: it takes the state folder, tries what the kernel can do,
// clears what a killed agent left, and listens. It needs root. The caller must
// call Serve or Close.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("netemd needs root to change the network: %w", os.ErrPermission)
	}
	cfg, err := cfg.normalize()
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, stopping: make(chan struct{})}
	if a.lock, err = lockStateDir(cfg.StateDir); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.Close(ctx))
	}
	a.ready = true
	return a, nil
}

// start takes away what an earlier agent left before anything of the configuration can fail:
// one with a mistake in it must not keep faults in the kernel. What that agent handed over
// is put back last, since from then on it would be cleared with this one.
func (a *Agent) start(ctx context.Context) error {
	auditing := errors.Join(a.openAudit(), a.openRefusals())
	last, err := a.inherit(ctx)
	if err := errors.Join(err, auditing); err != nil {
		return err
	}
	if a.policy, err = newPolicy(a.cfg.Settings); err != nil {
		return err
	}
	if err := a.newTelemetry(); err != nil {
		return err
	}
	if tcp := a.cfg.Settings.TCP; tcp.Listen != "" {
		if a.tls, err = newTLSDoor(tcp, a.cfg.Log); err != nil {
			return err
		}
	}
	if err := a.newLeases(); err != nil {
		return err
	}
	if err := a.listen(); err != nil {
		return err
	}
	a.putBack(ctx, last.Kept)
	a.serve()
	return nil
}

// inherit makes what works on the machine, takes over the labs of an earlier agent, clears
// what else it left, and returns what it wrote down.
func (a *Agent) inherit(ctx context.Context) (journal.Last, error) {
	a.features = features(ctx)
	a.cfg.Log.Info("kernel tried", "kernel", a.features.Kernel, "auto", a.features.Auto, "why", a.features.AutoReason)
	var err error
	if a.engines, err = newEngines(a.features, a.cfg.StateDir, a.cfg.Log); err != nil {
		return journal.Last{}, err
	}
	if a.labs, err = a.newLabs(); err != nil {
		return journal.Last{}, err
	}
	a.offloads = newOffloads(a.cfg)
	a.definitions = openDefinitions(a.cfg.StateDir, a.cfg.Settings.Definitions(), a.cfg.Log)
	last, err := a.openJournal()
	if err != nil {
		return last, err
	}
	if err := a.labs.Adopt(ctx); err != nil { // kept as broken: 'lab down' tries again
		a.cfg.Log.Error("labs of an earlier agent", "err", err)
	}
	return last, a.clearLeftovers(ctx, last)
}

// newTelemetry prepares what is shown to those who watch over machines; nothing unless it
// is configured.
func (a *Agent) newTelemetry() (err error) {
	a.telemetry, err = telemetry.New(telemetry.Config{
		Metrics: a.cfg.Settings.Metrics, Traces: a.cfg.Settings.Traces,
		Collect: func() []fault.Fault {
			ctx, cancel := context.WithTimeout(context.Background(), lookEvery)
			defer cancel()
			return a.leases.List(ctx)
		},
		Waiting: func() int { return a.leases.Waiting() },
	}, a.cfg.Log)
	return err
}

// controls are the TCP connections by which the agent is controlled now.
func (a *Agent) controls() (all []Connection) {
	if a.cfg.Connections != nil {
		all = a.cfg.Connections()
	}
	if a.tls != nil {
		all = append(all, a.tls.connections()...)
	}
	return all
}

// newLeases makes the books of the faults.
func (a *Agent) newLeases() error {
	g, err := newGuard(sessionOf(os.Getpid()), a.controls)
	if err != nil {
		return err
	}
	s := a.cfg.Settings
	remote, keeper := stream.NewRemote(a.cfg.StateDir, s.Toxiproxy.Prefixes())
	a.keeper = keeper
	a.leases = lease.New(a.telemetry.Steps(lease.Config{
		Engines: a.engines, Choose: a.choose, Stream: newStreamEngine(a.labs, remote), Process: newProcessEngine(a.labs), Requests: requestEngine{a.labs}, Resolve: a.resolveSpec, Standing: location.Standing,
		Lookup: lookup, LookupEvery: lookupEvery, Protect: g.protect, Offloads: a.offloads,
		LookEvery: lookEvery, Log: a.cfg.Log, Journal: a.journal,
		Limits: lease.Limits{
			Faults: s.Limits.Faults, PerOwner: s.Limits.FaultsPerOwner, Waiting: s.Limits.Waiting,
			TTL: time.Duration(s.TTL.Default), MaxTTL: time.Duration(s.TTL.Max),
		},
	}))
	if a.audit != nil || s.Metrics.Listen != "" {
		a.background.Go(func() { a.watchEvents(context.Background()) }) // until the leases are closed
	}
	return nil
}

// serve registers the services. They answer as not serving until the start is done.
func (a *Agent) serve() {
	l := a.cfg.Settings.Limits
	options := append(a.telemetry.ServerOptions(),
		grpc.Creds(door{tls: a.tls, admission: &admission{policy: a.policy}, refuse: a.refuseConnection}),
		grpc.StaticStreamWindowSize(wire.StreamWindow), grpc.StaticConnWindowSize(wire.ConnWindow),
		grpc.MaxRecvMsgSize(int(l.RequestBytes)), grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(maxStreams), grpc.ConnectionTimeout(connectTime), grpc.StatsHandler(unreached{a.refuseCall}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: wire.ServerMinPing, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(a.unary), grpc.StreamInterceptor(a.stream))
	a.server = grpc.NewServer(options...)
	netemv1.RegisterFaultsServer(a.server, faultsServer{a: a})
	netemv1.RegisterTargetsServer(a.server, targetsServer{a: a})
	netemv1.RegisterLabsServer(a.server, labsServer{a: a})
	netemv1.RegisterProbesServer(a.server, probesServer{a: a})
	netemv1.RegisterSystemServer(a.server, systemServer{a: a})
	a.health = health.NewServer()
	a.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
	healthv1.RegisterHealthServer(a.server, a.health)
	reflection.Register(a.server)
	if a.tls != nil {
		go a.tls.watch(a.stopping)
	}
}
