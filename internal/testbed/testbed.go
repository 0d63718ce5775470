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
	"netemd/internal/testbed/control"
)

// The names of the servers among this program's children. Their argument:
//
//	--port PORT       to listen on, at all addresses
//	--control PATH    the unix socket of its control, of http-echo, http-tier and payment
//	--user UID:GID    whom it becomes once it listens
//	--settings YAML   what an http-tier does (package settings)
//
// SIGTERM and SIGINT end them: what is being answered has a second.
const (
	HTTPEchoChild = control.HTTPEcho
	GRPCEchoChild = "grpc-echo"
	EchoChild     = "echo"
	TierChild     = control.HTTPTier
	// PaymentChild has --database, too: the URL of its PostgreSQL, without the password, which
	// the environment has as PGPASSWORD.
	PaymentChild = control.Payment
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
	child.Register(HTTPEchoChild, func(args []string) int {
		echo := &echoCounts{}
		return serveChild(HTTPEchoChild, args, echo, func(ctx context.Context, l net.Listener) error {
			return serveHTTP(ctx, l, HTTPEchoChild, echo.around(httpRoutes()))
		})
	})
	child.Register(TierChild, func(args []string) int {
		tier := NewTier()
		return serveChild(TierChild, args, tier, tier.Serve)
	})
	child.Register(PaymentChild, paymentChild)
	child.Register(GRPCEchoChild, func(args []string) int { return serveChild(GRPCEchoChild, args, nil, GRPCEcho) })
	child.Register(EchoChild, func(args []string) int { return serveChild(EchoChild, args, nil, EchoAtPort) })
}

// serveChild is the main of a server; c may be nil.
func serveChild(name string, args []string, c control.Controlled, serve func(context.Context, net.Listener) error) int {
	return serveChildWith(name, args, func(*flag.FlagSet) {}, c, serve)
}

// serveChildWith has more flags.
func serveChildWith(name string, args []string, more func(*flag.FlagSet), c control.Controlled, serve func(context.Context, net.Listener) error) int {
	if err := runChild(name, args, more, c, serve); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		return 1
	}
	return 0
}

func runChild(name string, args []string, more func(*flag.FlagSet), c control.Controlled, serve func(context.Context, net.Listener) error) error {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	more(flags)
	port := flags.Uint("port", 0, "port to listen on")
	socket := flags.String("control", "", "unix socket of the control")
	user := flags.String("user", "", "UID:GID to become")
	text := flags.String("settings", "", "settings as YAML")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *port == 0 || *port > 65535 {
		return errors.New("--port is needed, 1 to 65535")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if c != nil && *text != "" {
		if err := c.Set([]byte(*text)); err != nil {
			return err
		}
	}
	var orders net.Listener
	if c != nil && *socket != "" {
		var err error
		if orders, err = child.ListenUnix(*socket); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", ":"+strconv.FormatUint(uint64(*port), 10))
	if err == nil && *user != "" && os.Geteuid() == 0 {
		err = child.BecomeUser(*user)
	}
	if err != nil {
		return err
	}
	if orders != nil {
		go func() { _ = control.Serve(ctx, orders, c) }()
	}
	return serve(ctx, l)
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
