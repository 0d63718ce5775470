package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/fault"
	"netemd/internal/wire"
)

// ErrUnreachable is returned when no agent answers, or no longer.
var ErrUnreachable = errors.New("agent unreachable")

// ErrStopped is returned when the agent stopped, after it had ended what it did. It matches
// ErrUnreachable.
var ErrStopped = fmt.Errorf("%w: the agent stopped", ErrUnreachable)

// connectTime is how long an agent may take to answer a connection; with what the
// client itself needs, its silence is told within 2 s.
const connectTime = 1500 * time.Millisecond

// maxAnswer bounds an answer: a probe's samples are the largest.
const maxAnswer = 1 << 30

// Open connects to an agent. The error matches fs.ErrPermission when the socket may not
// be opened or the agent refuses the certificate, qdisc.ErrInvalid for an endpoint that
// is none, and ErrUnreachable when nobody listens or answers within 2 s.
func Open(e Endpoint) (*Client, error) {
	if err := e.Validate(); err != nil {
		return nil, err
	}
	c := &Client{at: e}
	ctx, cancel := context.WithTimeout(context.Background(), connectTime)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var secure credentials.TransportCredentials
	if e.overTCP() {
		var err error
		if secure, err = newTLS(e, attempt(fail)); err != nil {
			return nil, err
		}
	} else {
		if err := knock(e.String()); err != nil {
			return nil, err
		}
		secure = insecure.NewCredentials()
		c.pulse = newPulse(e.String())
	}
	if err := c.connect(ctx, secure, attempt(fail)); err != nil {
		return nil, err
	}
	c.faults, c.targets, c.labs = netemv1.NewFaultsClient(c.conn), netemv1.NewTargetsClient(c.conn), netemv1.NewLabsClient(c.conn)
	c.probes, c.system = netemv1.NewProbesClient(c.conn), netemv1.NewSystemClient(c.conn)
	return c, nil
}

// connect makes the connection and waits until the agent has answered.
func (c *Client) connect(ctx context.Context, secure credentials.TransportCredentials, try attempt) error {
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := c.dial(ctx)
			return conn, try.failed(err)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: wire.ReconnectFirst, Multiplier: 1.6, Jitter: 0.2, MaxDelay: wire.ReconnectMost},
			MinConnectTimeout: connectTime,
		}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: wire.ClientPing, Timeout: wire.ClientPingTimeout}),
		grpc.WithStaticStreamWindowSize(wire.StreamWindow), grpc.WithStaticConnWindowSize(wire.ConnWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
	}
	if c.pulse != nil {
		options = append(options, grpc.WithUnaryInterceptor(c.pulse.unary), grpc.WithStreamInterceptor(c.pulse.streaming))
	}
	var err error
	// The agent is one process at one place: no names are resolved by gRPC, and no
	// proxy of the environment's stands between.
	if c.conn, err = grpc.NewClient("passthrough:///netemd", options...); err != nil {
		return fmt.Errorf("dial %s: %w", c.at, err)
	}
	if c.pulse != nil {
		c.pulse.begin(c.conn)
	}
	if err := handshake(ctx, c.conn); err != nil {
		return errors.Join(c.unanswered(err), c.Close())
	}
	return nil
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	if c.at.overTCP() {
		return (&net.Dialer{}).DialContext(ctx, "tcp", c.at.Address)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.at.String())
	if err == nil {
		c.pulse.peer.Store(int64(peerPID(conn)))
	}
	return conn, err
}

// handshake waits until the agent has answered: a stopped one still has a socket
// that accepts. What the first try ended with is ctx's cause.
func handshake(ctx context.Context, conn *grpc.ClientConn) error {
	conn.Connect()
	for s := conn.GetState(); s != connectivity.Ready; s = conn.GetState() {
		if !conn.WaitForStateChange(ctx, s) {
			return context.Cause(ctx)
		}
		conn.Connect() // one that ended after its handshake is idle
	}
	return nil
}

// unanswered says why an agent did not answer a new connection.
func (c *Client) unanswered(err error) error {
	if refusal := refused(c.at, err); refusal != nil {
		return refusal
	}
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return fmt.Errorf("%w: %s: %w", ErrUnreachable, c.at, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fault.WithHint(fmt.Errorf("%w: nothing listens at %s", ErrUnreachable, c.at), "netemd listens on TCP only where its configuration says so (tcp.listen)")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return fault.WithHint(
			fmt.Errorf("%w: %s does not answer within %v", ErrUnreachable, c.at, connectTime),
			"it may be stopped or hung: 'ps -o pid,stat,cmd -C netemd'")
	}
	return fmt.Errorf("%w: %s: %w", ErrUnreachable, c.at, err)
}

// knock opens the socket once, to tell "not allowed" from "nobody there" in the
// kernel's own words.
func knock(socket string) error {
	conn, err := net.DialTimeout("unix", socket, connectTime)
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, fs.ErrPermission):
		return fault.WithHint(fmt.Errorf("agent socket %s: %w", socket, fs.ErrPermission),
			outsider(socket))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fault.WithHint(fmt.Errorf("%w: nothing listens at %s", ErrUnreachable, socket),
			"start it with: sudo netemd (or name another socket with --socket or NETEMD_SOCKET)")
	case errors.Is(err, syscall.EAGAIN): // more wait to be accepted than the kernel lets (unix(7))
		return fault.WithHint(fmt.Errorf("%w: %s has too many connections that the agent has not accepted yet: %w", ErrUnreachable, socket, syscall.EAGAIN),
			"it may be hung or overloaded: 'ps -o pid,stat,cmd -C netemd'; 'ss -xlp' counts them")
	default:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
}

// outsider says how one comes to be let in at a socket that the kernel keeps one out of.
func outsider(socket string) string {
	me, st := "USER", syscall.Stat_t{}
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	if err := syscall.Stat(socket, &st); err == nil && st.Gid != 0 {
		if g, err := user.LookupGroupId(strconv.FormatUint(uint64(st.Gid), 10)); err == nil {
			return fmt.Sprintf("run as root, or as a member of the group %s: 'sudo usermod -aG %s %s' puts you into it, from the next login on", g.Name, g.Name, me)
		}
	}
	return "run as root, or as a member of the group that owns the socket ('ls -l " + socket + "')"
}
