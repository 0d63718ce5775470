package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
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
	"netemd/internal/offload"
	"netemd/internal/wire"
)

// Group may open the socket, when it exists.
const Group = "netem"

// stopTime bounds how long calls in progress may take when the agent stops.
const stopTime = 5 * time.Second

// lookEvery is how often the kernel is compared with the faults that are held, so
// that what is lost or changed behind our back is seen within 1 s.
const lookEvery = 500 * time.Millisecond

// labStopTime bounds how long taking the labs down may take when the agent stops.
const labStopTime = 90 * time.Second

// Config says where the agent keeps its state and listens.
type Config struct {
	// StateDir holds everything that must not outlive a boot; default /run/netemd.
	// Agents with different folders live side by side.
	StateDir string
	// Socket is the unix socket; default StateDir/netemd.sock.
	Socket string
	// Connections are the TCP connections by which the agent is controlled, which a
	// fault may hit only when it is forced to; nil for none, as over the unix socket.
	Connections func() []Connection
	Log         *slog.Logger
}

// normalize fills in what was not said. The state folder gets the one name by which
// what an agent leaves is known.
func (c Config) normalize() (Config, error) {
	dir, err := filepath.Abs(c.StateDir)
	if err != nil {
		return c, fmt.Errorf("state folder: %w", err)
	}
	c.StateDir = dir
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
	leases   *lease.Manager
	offloads *offload.Keeper
	// verifying are the verifications in progress.
	verifying verifications
	server    *grpc.Server
	listener  net.Listener
	stopping  chan struct{}
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

func (a *Agent) start(ctx context.Context) error {
	var err error
	a.features = features(ctx)
	a.cfg.Log.Info("kernel tried", "kernel", a.features.Kernel, "auto", a.features.Auto, "why", a.features.AutoReason)
	if a.engines, err = newEngines(a.features, a.cfg.StateDir, a.cfg.Log); err != nil {
		return err
	}
	if a.labs, err = a.newLabs(); err != nil {
		return err
	}
	a.offloads = newOffloads(a.cfg)
	g, err := newGuard(sessionOf(os.Getpid()), a.cfg.Connections)
	if err != nil {
		return err
	}
	a.leases = lease.New(lease.Config{
		Engines: a.engines, Choose: a.choose, Stream: newStreamEngine(a.labs), Resolve: a.resolveSpec,
		Lookup: lookup, LookupEvery: lookupEvery, Protect: g.protect, Offloads: a.offloads,
		LookEvery: lookEvery, Log: a.cfg.Log,
	})
	if err := a.labs.Adopt(ctx); err != nil { // kept as broken: 'lab down' tries again
		a.cfg.Log.Error("labs of an earlier agent", "err", err)
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

// labDown ends the faults on a lab's targets, then takes it down.
func (a *Agent) labDown(ctx context.Context, name string) (bool, error) {
	infos, err := a.labs.List(ctx)
	if err != nil {
		return false, err
	}
	for _, i := range infos {
		if i.Name == name {
			existed := false
			err := a.leases.Retire(ctx, i.Targets, func(ctx context.Context) (err error) {
				existed, err = a.labs.Down(ctx, name)
				return err
			})
			return existed, err
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
	if err := checkStateDir(dir); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
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

// checkStateDir refuses a folder in which others could plant what root then follows.
func checkStateDir(dir string) error {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("state folder %s: %w", dir, err)
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fault.WithHint(fmt.Errorf("state folder %s: must belong to root and be writable by nobody else: %w", dir, os.ErrPermission),
			"name a folder that does not exist yet, below one of root's")
	}
	return nil
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
	if err := removeSocket(path); err != nil {
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

// unary turns errors and panics into statuses and writes down what was asked.
func (a *Agent) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (m any, err error) {
	defer func() {
		err = a.ended(ctx, info.FullMethod, recover(), err)
	}()
	return next(ctx, req)
}

// stream does the same for streams, and ends them when the agent stops.
func (a *Agent) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer func() {
		err = a.ended(s.Context(), info.FullMethod, recover(), err)
	}()
	ctx, cancel := context.WithCancelCause(s.Context())
	defer cancel(nil)
	go func() {
		select {
		case <-a.stopping:
			cancel(errStopping)
		case <-ctx.Done():
		}
	}()
	return next(srv, streamWithContext{s, ctx})
}

var errStopping = errors.New("the agent is stopping")

type streamWithContext struct {
	grpc.ServerStream
	ctx context.Context
}

func (s streamWithContext) Context() context.Context { return s.ctx }

// ended writes a call's end down and makes a status of its error. A panic ends its
// call only: the faults of the others must still end in time.
func (a *Agent) ended(ctx context.Context, method string, panicked any, err error) error {
	if panicked != nil {
		a.cfg.Log.Error("call panicked", "method", method, "by", owner(ctx), "panic", panicked, "stack", string(debug.Stack()))
		err = fmt.Errorf("the agent failed at %s: %v", method, panicked)
	}
	switch {
	case err != nil:
		a.cfg.Log.Warn("call failed", "method", method, "by", owner(ctx), "err", err)
	case changes[path.Base(method)]:
		a.cfg.Log.Info("call", "method", method, "by", owner(ctx))
	default:
		a.cfg.Log.Debug("call", "method", method, "by", owner(ctx))
	}
	return wire.Status(err)
}

// changes are the calls that change the machine.
var changes = map[string]bool{"Apply": true, "Change": true, "Renew": true, "Clear": true, "Up": true, "Down": true}

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
	if a.ready {
		ctx, cancel := context.WithTimeoutCause(ctx, labStopTime, errors.New("taking the labs down took too long"))
		defer cancel()
		errs = append(errs, a.labs.Cleanup(ctx))
	}
	if a.labs != nil {
		errs = append(errs, a.labs.Close())
	}
	for _, e := range a.engines {
		errs = append(errs, e.Close())
	}
	if a.listener != nil { // closing it removes the socket; a kill of the server does not
		errs = append(errs, removeSocket(a.cfg.Socket))
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
		go a.server.Stop() // it waits for handlers, which end with this process at the latest
	}
}

// removeSocket removes a socket at which nobody answers any more.
func removeSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Mode().Type() != os.ModeSocket {
		return nil
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		return conn.Close()
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// removeStateDir removes the lock, and the folder when nothing else is in it.
func removeStateDir(cfg Config, lock *os.File) error {
	err := os.Remove(lock.Name())
	_ = os.Remove(filepath.Join(cfg.StateDir, "labs")) // not empty: a lab that could not be taken down
	_ = os.Remove(cfg.StateDir)
	return errors.Join(err, lock.Close())
}
