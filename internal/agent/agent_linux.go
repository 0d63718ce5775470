package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/feature"
	"netemd/internal/lab"
	"netemd/internal/lease"
	"netemd/internal/target"
	"netemd/internal/wire"
)

// Group may open the socket, when it exists.
const Group = "netem"

// stopTime bounds how long calls in progress may take when the agent stops.
const stopTime = 5 * time.Second

// Config says where the agent keeps its state and listens.
type Config struct {
	// StateDir holds everything that must not outlive a boot; default /run/netemd.
	// Agents with different folders live side by side.
	StateDir string
	// Socket is the unix socket; default StateDir/netemd.sock.
	Socket string
	Log    *slog.Logger
}

// Agent is one netemd.
type Agent struct {
	cfg      Config
	lock     *os.File
	features feature.Report
	engines  map[fault.Engine]lease.Engine
	labs     *lab.Manager
	leases   *lease.Manager
	server   *grpc.Server
	listener net.Listener
	stopping chan struct{}
}

// New prepares an agent: it takes the state folder, tries what the kernel can do,
// clears what a killed agent left, and listens. It needs root. The caller must
// call Serve or Close.
func New(ctx context.Context, cfg Config) (*Agent, error) {
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("netemd needs root to change the network: %w", os.ErrPermission)
	}
	if cfg.Socket == "" {
		cfg.Socket = filepath.Join(cfg.StateDir, "netemd.sock")
	}
	a := &Agent{cfg: cfg, stopping: make(chan struct{})}
	var err error
	if a.lock, err = lockStateDir(cfg.StateDir); err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		return nil, errors.Join(err, a.Close(ctx))
	}
	return a, nil
}

func (a *Agent) start(ctx context.Context) error {
	var err error
	a.features = features(ctx)
	a.cfg.Log.Info("kernel tried", "kernel", a.features.Kernel, "auto", a.features.Auto, "why", a.features.AutoReason)
	if a.engines, err = newEngines(a.features, a.cfg.Log); err != nil {
		return err
	}
	if a.labs, err = a.newLabs(); err != nil {
		return err
	}
	a.leases = lease.New(lease.Config{
		Engines: a.engines, Choose: a.choose, Stream: newStreamEngine(a.labs), Resolve: a.resolve, Log: a.cfg.Log,
	})
	if err := a.labs.Adopt(ctx); err != nil {
		return fmt.Errorf("labs of an earlier agent: %w", err)
	}
	if err := a.clearLeftovers(ctx); err != nil {
		return err
	}
	if a.listener, err = listen(a.cfg.Socket); err != nil {
		return err
	}
	a.serve()
	return nil
}

// choose says what auto takes on this kernel.
func (a *Agent) choose(context.Context) (fault.Engine, string, error) {
	if a.features.Auto == "" {
		return "", "", fmt.Errorf("apply: this kernel (%s) can carry no packet fault ('netemctl doctor' says why): %w", a.features.Kernel, errors.ErrUnsupported)
	}
	return a.features.Auto, a.features.AutoReason, nil
}

// resolve finds a target that exists now.
func (a *Agent) resolve(ctx context.Context, name string) (target.Target, error) {
	ts, err := a.labs.Targets(ctx)
	if err != nil {
		return target.Target{}, err
	}
	for _, t := range ts {
		if t.Name == name {
			return t, nil
		}
	}
	return target.Target{}, unknownTarget(name, ts)
}

// unknownTarget names the targets that there are, or the lab that would bring the
// one asked for.
func unknownTarget(name string, known []target.Target) error {
	for _, d := range lab.Builtins() {
		for _, t := range d.Targets {
			if t.Name == name {
				return hinted{
					error: fmt.Errorf("%w %q: lab %s, which has it, is not up", target.ErrUnknown, name, d.Name),
					hint:  "netemctl lab up " + d.Name,
				}
			}
		}
	}
	if len(known) == 0 {
		return hinted{
			error: fmt.Errorf("%w %q: there are none, since no lab is up; labs: %s", target.ErrUnknown, name, lab.Builtins()[0].Name),
			hint:  "netemctl lab up " + lab.Builtins()[0].Name,
		}
	}
	names := make([]string, len(known))
	for i, t := range known {
		names[i] = t.Name
	}
	return fmt.Errorf("%w %q: known: %s", target.ErrUnknown, name, strings.Join(names, ", "))
}

// hinted is an error that knows what to do about it.
type hinted struct {
	error
	hint string
}

func (h hinted) Hint() string  { return h.hint }
func (h hinted) Unwrap() error { return h.error }

// labDown ends the faults on a lab's targets, then takes it down.
func (a *Agent) labDown(ctx context.Context, name string) (bool, error) {
	infos, err := a.labs.List(ctx)
	if err != nil {
		return false, err
	}
	for _, i := range infos {
		if i.Name == name {
			if err := a.leases.Forget(ctx, i.Targets); err != nil {
				return true, err
			}
			return a.labs.Down(ctx, name)
		}
	}
	if _, ok := lab.Builtin(name); !ok {
		return false, unknownLab(name)
	}
	return false, nil
}

// lockStateDir makes the folder and holds a lock in it, so that one agent at a
// time uses it. The lock goes with the process.
func lockStateDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		pid, _ := os.ReadFile(f.Name())
		_ = f.Close()
		return nil, fmt.Errorf("state folder %s is in use by another agent (pid %s): %w", dir, pid, err)
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if there, err := os.Stat(path); err != nil || !os.SameFile(mine, there) {
		_ = f.Close()
		return lockStateDir(dir) // its last holder removed it meanwhile
	}
	if err := f.Truncate(0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if _, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// listen opens the socket for root and the group netem. The state folder is ours,
// so a socket there is a dead agent's; elsewhere only a dead one is replaced.
func listen(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen %s: another program answers there: %w", path, unix.EADDRINUSE)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("listen %s: there is a file that is no socket: %w", path, os.ErrExist)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	gid := 0
	if g, err := user.LookupGroup(Group); err == nil {
		gid, _ = strconv.Atoi(g.Gid)
	}
	if err := errors.Join(os.Chown(path, 0, gid), os.Chmod(path, 0o660)); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	return l, nil
}

// serve registers the services.
func (a *Agent) serve() {
	a.server = grpc.NewServer(
		grpc.Creds(peerCredentials{}),
		grpc.MaxRecvMsgSize(wire.MaxRequest),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: wire.ServerMinPing, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(a.unary), grpc.StreamInterceptor(a.stream))
	netemv1.RegisterFaultsServer(a.server, faultsServer{a: a})
	netemv1.RegisterTargetsServer(a.server, targetsServer{a: a})
	netemv1.RegisterLabsServer(a.server, labsServer{a: a})
	netemv1.RegisterProbesServer(a.server, probesServer{a: a})
	netemv1.RegisterSystemServer(a.server, systemServer{a: a})
	h := health.NewServer()
	h.SetServingStatus("", healthv1.HealthCheckResponse_SERVING)
	healthv1.RegisterHealthServer(a.server, h)
	reflection.Register(a.server)
}

// unary turns errors into statuses and writes down what was asked.
func (a *Agent) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	m, err := next(ctx, req)
	a.logCall(ctx, info.FullMethod, err)
	return m, wire.Status(err)
}

// stream does the same for streams, and ends them when the agent stops.
func (a *Agent) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-a.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	err := next(srv, streamWithContext{s, ctx})
	a.logCall(ctx, info.FullMethod, err)
	return wire.Status(err)
}

var errStopping = errors.New("the agent is stopping")

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s streamWithContext) Context() context.Context { return s.ctx }

func (a *Agent) logCall(ctx context.Context, method string, err error) {
	if err != nil {
		a.cfg.Log.Warn("call failed", "method", method, "by", owner(ctx), "err", err)
		return
	}
	a.cfg.Log.Debug("call", "method", method, "by", owner(ctx))
}

// Serve answers until ctx ends; then it clears all faults, takes the labs down and
// removes its files.
func (a *Agent) Serve(ctx context.Context) error {
	served := make(chan error, 1)
	go func() { served <- a.server.Serve(a.listener) }()
	a.cfg.Log.Info("ready", "socket", a.cfg.Socket, "state", a.cfg.StateDir, "pid", os.Getpid())
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	return errors.Join(err, a.Close(ctx))
}

// Close undoes everything that the agent did to the machine. It goes on after an
// error and returns them all; it also works on an agent that did not start.
func (a *Agent) Close(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	var errs []error
	if a.leases != nil {
		errs = append(errs, a.leases.Close(ctx))
	}
	if a.server != nil {
		a.stopServer()
	} else if a.listener != nil {
		errs = append(errs, a.listener.Close())
	}
	if a.labs != nil && a.leases != nil {
		errs = append(errs, a.labs.Cleanup(ctx), a.labs.Close())
	}
	for _, e := range a.engines {
		errs = append(errs, e.Close())
	}
	errs = append(errs, removeStateDir(a.cfg, a.lock))
	return errors.Join(errs...)
}

func (a *Agent) stopServer() {
	close(a.stopping)
	done := make(chan struct{})
	go func() {
		a.server.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(stopTime):
		a.server.Stop()
		<-done
	}
}

// removeStateDir removes what is ours in the state folder, and the folder when
// nothing else is in it.
func removeStateDir(cfg Config, lock *os.File) error {
	var errs []error
	for _, path := range []string{cfg.Socket, lock.Name()} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	_ = os.Remove(cfg.StateDir) // not empty: somebody else's files
	return errors.Join(append(errs, lock.Close())...)
}
