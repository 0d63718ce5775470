//go:build !linux

package netemtest

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
)

// Do needs Linux.
func (*Node) Do(context.Context, func() error) error { return errors.ErrUnsupported }

// DialContext needs Linux.
func (*Node) DialContext(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

// Listen needs Linux.
func (*Node) Listen(string, string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// ListenPacket needs Linux.
func (*Node) ListenPacket(string, string) (net.PacketConn, error) { return nil, errors.ErrUnsupported }

// Command needs Linux.
func (*Node) Command(name string, _ ...string) *exec.Cmd {
	return &exec.Cmd{Path: name, Err: errors.ErrUnsupported}
}

// CommandContext needs Linux.
func (n *Node) CommandContext(_ context.Context, name string, args ...string) *exec.Cmd {
	return n.Command(name, args...)
}

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
