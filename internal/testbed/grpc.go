package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	"netemd/probe/grpc/echo"
)

// Limits of what a request may ask of GRPCEcho.
const (
	maxAnswers = 100_000
	maxPayload = 1 << 20
	// maxMessage is a text of 4 MiB, and what is around it.
	maxMessage = 5 << 20
	// minPing is less than any client's keepalive: grpc-go's least is 10 s.
	minPing = 5 * time.Second
)

// GRPCEcho serves the service of echo.proto without TLS at l, with gRPC's own health and
// reflection services, until ctx ends; it closes l.
func GRPCEcho(ctx context.Context, l net.Listener) error {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		// no client's pings are too many here: what is tested is the path
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
	)
	echo.RegisterEchoServer(server, echoServer{})
	state := health.NewServer()
	state.SetServingStatus(echo.Echo_ServiceDesc.ServiceName, grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, state)
	reflection.Register(server)
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("grpc-echo: %w", err)
	case <-ctx.Done():
	}
	state.Shutdown()
	hard := time.AfterFunc(graceful, server.Stop)
	server.GracefulStop()
	hard.Stop()
	if err := <-failed; err != nil {
		return fmt.Errorf("grpc-echo: %w", err)
	}
	return nil
}

type echoServer struct{ echo.UnimplementedEchoServer }

// reply is the answer to a request, after its delay.
func reply(ctx context.Context, r *echo.Request, number uint32) (*echo.Reply, error) {
	if r.GetBytes() > maxPayload || r.GetCount() > maxAnswers || time.Duration(r.GetDelayMs())*time.Millisecond > maxDelay {
		return nil, status.Errorf(codes.InvalidArgument, "bytes are at most %d, count %d, delay_ms %d", maxPayload, maxAnswers, maxDelay.Milliseconds())
	}
	if err := pause(ctx, time.Duration(r.GetDelayMs())*time.Millisecond); err != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if r.GetStatus() != 0 {
		return nil, status.Error(codes.Code(r.GetStatus()), "as asked for")
	}
	m := &echo.Reply{Text: r.GetText(), Number: number, Payload: make([]byte, r.GetBytes())}
	if p, ok := peer.FromContext(ctx); ok {
		m.Peer = p.Addr.String()
	}
	return m, nil
}

func (echoServer) Unary(ctx context.Context, r *echo.Request) (*echo.Reply, error) {
	return reply(ctx, r, 1)
}

func (echoServer) Expand(r *echo.Request, stream grpc.ServerStreamingServer[echo.Reply]) error {
	for i := range max(r.GetCount(), 1) {
		m, err := reply(stream.Context(), r, i+1)
		if err == nil {
			err = stream.Send(m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (echoServer) Collect(stream grpc.ClientStreamingServer[echo.Request, echo.Reply]) error {
	last := &echo.Request{}
	for n := uint32(0); ; n++ {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			m, err := reply(stream.Context(), last, n)
			if err != nil {
				return err
			}
			return stream.SendAndClose(m)
		}
		if err != nil {
			return err
		}
		last = r
	}
}

func (echoServer) Exchange(stream grpc.BidiStreamingServer[echo.Request, echo.Reply]) error {
	for n := uint32(1); ; n++ {
		r, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		m, err := reply(stream.Context(), r, n)
		if err == nil {
			err = stream.Send(m)
		}
		if err != nil {
			return err
		}
	}
}
