package netemtest

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/child"
	"netemd/namespaces"
)

// Do runs f inside the node, on a thread of its own, and returns f's error. Sockets that f opens
// stay in the node and may be used anywhere later. Only f's own goroutine is inside: one that it
// starts is not, nor is what a library does on goroutines of its own, as dialing a name is; for
// that there is DialContext. A long f costs a thread as long.
func (n *Node) Do(ctx context.Context, f func() error) error {
	return namespaces.Do(ctx, n.info.Namespace, f)
}

// entering bounds how many threads are in nodes at a time: each call is a few system calls, and
// the runtime never ends a thread that it has once started.
var entering = make(chan struct{}, 2)

// within is Do for what does not block.
func (n *Node) within(ctx context.Context, f func() error) error {
	select {
	case entering <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-entering }()
	return n.Do(ctx, f)
}

// stagger is how long a dial waits for one address before it tries the next as well (RFC 8305,
// section 5, and net.Dialer's default, are about as long).
const stagger = 300 * time.Millisecond

// DialContext dials from inside the node, as net.Dialer.DialContext does: it is what
// http.Transport, pgx, gRPC and others take. network is tcp, tcp4, tcp6, udp, udp4 or udp6; the
// host is an address, a node of the lab by its name, or a name that is looked up where the
// test's process is. Without a deadline in ctx it takes as long as the kernel tries: about two
// minutes for TCP. Errors are *net.OpError; the end of ctx matches context.DeadlineExceeded or
// context.Canceled.
func (n *Node) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	addrs, err := n.resolve(ctx, network, address)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if len(addrs) == 1 {
		return n.dial(ctx, network, addrs[0])
	}
	return n.race(ctx, network, addrs)
}

// race dials one address after the other, without waiting for one longer than stagger, and
// returns the first connection; if there is none, the first error.
func (n *Node) race(ctx context.Context, network string, addrs []netip.AddrPort) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	var first error
	started, ended := 0, 0
	next := time.NewTimer(0)
	defer next.Stop()
	defer func() { // what comes too late
		go func() {
			for ; ended < started; ended++ {
				if r := <-results; r.conn != nil {
					_ = r.conn.Close()
				}
			}
		}()
	}()
	for {
		select {
		case <-next.C:
			if started < len(addrs) {
				at := addrs[started]
				started++
				go func() {
					conn, err := n.dial(ctx, network, at)
					results <- result{conn, err}
				}()
				next.Reset(stagger)
			}
		case r := <-results:
			ended++
			if r.err == nil {
				return r.conn, nil
			}
			if first == nil {
				first = r.err
			}
			if ended == len(addrs) {
				return nil, first
			}
			if ended == started {
				next.Reset(0)
			}
		}
	}
}

// resolve lists the addresses of HOST:PORT of the network's family, in the order in which they
// are tried.
func (n *Node) resolve(ctx context.Context, network, address string) (found []netip.AddrPort, err error) {
	proto, v4, v6, err := family(network)
	if err != nil {
		return nil, err
	}
	host, service, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, proto, service)
	if err != nil {
		return nil, err
	}
	if host == "" {
		host = map[bool]string{true: "127.0.0.1", false: "::1"}[v4]
	}
	addrs, err := n.n.lookup(ctx, host)
	if err != nil {
		return nil, err
	}
	for _, a := range addrs {
		if a = a.Unmap(); a.Is4() && v4 || a.Is6() && v6 {
			found = append(found, netip.AddrPortFrom(a, uint16(port)))
		}
	}
	if len(found) == 0 {
		return nil, &net.AddrError{Err: "no address of network " + network, Addr: host}
	}
	return found, nil
}

// family splits a network's name.
func family(network string) (proto string, v4, v6 bool, err error) {
	switch network {
	case "tcp", "udp":
		return network, true, true, nil
	case "tcp4", "udp4":
		return network[:3], true, false, nil
	case "tcp6", "udp6":
		return network[:3], false, true, nil
	}
	return "", false, false, net.UnknownNetworkError(network)
}

// dial connects to one address. The socket is made and its connect begun inside the node; what
// comes after waits outside, on the runtime's poller, so that no thread is held meanwhile.
func (n *Node) dial(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error) {
	conn, err := n.connect(ctx, network, at)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	var to net.Addr = net.TCPAddrFromAddrPort(at)
	if network[0] == 'u' {
		to = net.UDPAddrFromAddrPort(at)
	}
	return nil, &net.OpError{Op: "dial", Net: network, Addr: to, Err: err}
}

func (n *Node) connect(ctx context.Context, network string, at netip.AddrPort) (net.Conn, error) {
	kind := unix.SOCK_STREAM
	if network[0] == 'u' {
		kind = unix.SOCK_DGRAM
	}
	var f *os.File
	err := n.within(ctx, func() error {
		fd, err := unix.Socket(domain(at.Addr()), kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		if err := unix.Connect(fd, sockaddr(at)); err != nil && err != unix.EINPROGRESS { //nolint:errorlint // unix's own
			_ = unix.Close(fd)
			return os.NewSyscallError("connect", err)
		}
		// Not before the connect: the poller takes a socket without one for closed.
		f = os.NewFile(uintptr(fd), network)
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // FileConn has a descriptor of its own
	defer context.AfterFunc(ctx, func() { _ = f.SetWriteDeadline(time.Unix(1, 0)) })()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	var connected error
	err = raw.Write(func(fd uintptr) bool {
		var done bool
		done, connected = isConnected(int(fd))
		return done
	})
	if err == nil {
		err = connected
	}
	if err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// isConnected reports whether a connect has ended, and how. Becoming writable can be a false
// alarm, so the peer is asked for.
func isConnected(fd int) (done bool, err error) {
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	switch {
	case err != nil:
		return true, os.NewSyscallError("getsockopt", err)
	case code != 0:
		return true, os.NewSyscallError("connect", unix.Errno(code))
	}
	_, err = unix.Getpeername(fd)
	return err == nil, nil
}

func domain(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}

// Listen listens inside the node, as net.Listen does; ":0" is a free port of the node, and the
// host may be the node's own name.
func (n *Node) Listen(network, address string) (net.Listener, error) {
	return listen(n, network, address, func(ctx context.Context, address string) (net.Listener, error) {
		return (&net.ListenConfig{}).Listen(ctx, network, address)
	})
}

// ListenPacket is net.ListenPacket inside the node.
func (n *Node) ListenPacket(network, address string) (net.PacketConn, error) {
	return listen(n, network, address, func(ctx context.Context, address string) (net.PacketConn, error) {
		return (&net.ListenConfig{}).ListenPacket(ctx, network, address)
	})
}

func listen[L any](n *Node, network, address string, f func(context.Context, string) (L, error)) (l L, err error) {
	ctx := context.Background()
	// A name would be looked up on another goroutine, outside.
	if host, port, err := net.SplitHostPort(address); err == nil && host != "" {
		addrs, err := n.resolve(ctx, network, address)
		if err != nil {
			return l, &net.OpError{Op: "listen", Net: network, Err: err}
		}
		address = net.JoinHostPort(addrs[0].Addr().String(), port)
	}
	err = n.within(ctx, func() error {
		l, err = f(ctx, address)
		return err
	})
	return l, err
}

// Command is exec.Command of a program that runs inside the node from its first instruction on.
// It sees this process's file system.
func (n *Node) Command(name string, args ...string) *exec.Cmd {
	return n.CommandContext(context.Background(), name, args...)
}

// CommandContext is Command of a program that is killed when ctx ends.
func (n *Node) CommandContext(ctx context.Context, name string, args ...string) *exec.Cmd {
	path, missing := exec.LookPath(name)
	argv := append([]string{n.info.Namespace, path, name}, args...)
	cmd := exec.CommandContext(ctx, "/proc/self/exe", child.Args(execChild, argv...)...)
	if missing != nil {
		cmd.Err = missing
	}
	return cmd
}

// enter takes the calling thread, which becomes another program, into the namespace.
func enter(namespace string) error {
	ns, err := namespaces.Open(namespace)
	if err != nil {
		return err
	}
	defer func() { _ = ns.Close() }()
	if err := unix.Setns(ns.FD(), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("namespace enter: %s: %w", namespace, err)
	}
	return nil
}

func lookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
