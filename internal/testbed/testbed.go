// Package testbed has the small servers that labs and experiments need: they answer with
// what they were asked, and can be told to answer late, much or with an error.
//
// As a Go program's part they serve a listener; as a service of a lab they are a child
// of netemd in the service's node.
package testbed

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"netemd/internal/child"
)

// The names of the servers among this program's children. Their argument:
//
//	--port PORT   to listen on, at all addresses
//
// SIGTERM and SIGINT end them: what is being answered has a second.
const (
	HTTPEchoChild = "http-echo"
	GRPCEchoChild = "grpc-echo"
	EchoChild     = "echo"
)

// graceful is how long what is being answered at the end may take.
const graceful = time.Second

// maxDelay bounds how late an answer can be asked for, maxBytes how long, maxDrips in how
// many pieces.
const (
	maxDelay = time.Minute
	maxBytes = 64 << 20
	// maxDigest is how long an answer is that is read twice, the first time for its digest.
	maxDigest = 1 << 20
	maxDrips  = 1000
)

func init() {
	child.Register(HTTPEchoChild, func(args []string) int { return serveChild(HTTPEchoChild, args, HTTPEcho) })
	child.Register(GRPCEchoChild, func(args []string) int { return serveChild(GRPCEchoChild, args, GRPCEcho) })
	child.Register(EchoChild, func(args []string) int { return serveChild(EchoChild, args, EchoAtPort) })
}

func serveChild(name string, args []string, serve func(context.Context, net.Listener) error) int {
	err := func() error {
		flags := flag.NewFlagSet(name, flag.ContinueOnError)
		port := flags.Uint("port", 0, "port to listen on")
		if err := flags.Parse(args); err != nil {
			return err
		}
		if *port == 0 || *port > 65535 {
			return errors.New("--port is needed, 1 to 65535")
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
		defer stop()
		l, err := net.Listen("tcp", ":"+strconv.FormatUint(uint64(*port), 10))
		if err != nil {
			return err
		}
		return serve(ctx, l)
	}()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

// pause waits, but not longer than the client does.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(min(d, maxDelay)):
		return nil
	}
}
