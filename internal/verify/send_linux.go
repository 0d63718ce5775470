package verify

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

// sendBuffer is what may wait in queues that hold the socket to account.
const sendBuffer = 256 << 20

// sender sends packets by a raw socket: routed, or out of one device.
type sender struct {
	fd     int
	packet packet
	// to is where a routed packet goes; header is put before one that is not.
	to     unix.Sockaddr
	header []byte
	sent   atomic.Int64
}

// routed sends by the routing of a namespace.
func routed(ctx context.Context, namespace string, p packet) (*sender, error) {
	s := &sender{fd: -1, packet: p}
	family := unix.AF_INET
	if a := p.flow.to.Addr(); a.Is4() {
		s.to = &unix.SockaddrInet4{Addr: a.As4()}
	} else {
		family, s.to = unix.AF_INET6, &unix.SockaddrInet6{Addr: a.As16()}
	}
	err := namespaces.Do(ctx, namespace, func() (err error) {
		// With IPPROTO_RAW the IP header is ours (raw(7)), and nothing is received.
		s.fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_RAW)
		return err
	})
	return s.ready("raw socket", err)
}

// direct sends out of a device, through its egress hook and its qdisc, to a hardware
// address that no bridge forwards and no stack answers: its packets end at the other
// end of the cable.
func direct(ctx context.Context, namespace string, index int, header []byte, p packet) (*sender, error) {
	s := &sender{fd: -1, packet: p, header: header}
	err := namespaces.Do(ctx, namespace, func() (err error) {
		if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
			return err
		}
		return unix.Bind(s.fd, &unix.SockaddrLinklayer{Ifindex: index})
	})
	s.to = &unix.SockaddrLinklayer{Protocol: network16(etherType(p.flow)), Ifindex: index}
	return s.ready("packet socket", err)
}

func (s *sender) ready(what string, err error) (*sender, error) {
	if err == nil {
		err = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	}
	if err != nil {
		if s.fd >= 0 {
			_ = unix.Close(s.fd)
		}
		return nil, fmt.Errorf("send: %s: %w", what, err)
	}
	return s, nil
}

func (s *sender) close() error { return unix.Close(s.fd) }

// run sends a packet at each of the times due, or as soon after as it can. It returns
// when each was handed to the kernel, since start, and how late that was for each that
// was waited for, in no order.
func (s *sender) run(ctx context.Context, start time.Time, due []time.Duration) (sent, late []time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A thread's timers are 50 us late otherwise (PR_SET_TIMERSLACK of prctl(2)).
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0); err == nil {
		defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }()
	}
	sent = make([]time.Duration, 0, len(due))
	buffer := make([]byte, len(s.header)+s.packet.size)
	copy(buffer, s.header)
	for i, at := range due {
		s.packet.fill(buffer[len(s.header):], uint32(i))
		if slept, err := sleepUntil(ctx, start.Add(at)); err != nil {
			return sent, late, err
		} else if slept {
			late = append(late, time.Since(start)-at)
		}
		// The wall clock, since it is the kernel's stamps that this is compared with.
		now := time.Now().Round(0).Sub(start.Round(0))
		if err := s.send(ctx, buffer); err != nil {
			return sent, late, err
		}
		sent = append(sent, now)
		s.sent.Store(int64(i + 1))
	}
	return sent, late, nil
}

// send waits where the socket's buffer is full. What a queue of the path drops is
// sent all the same.
func (s *sender) send(ctx context.Context, b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, unix.MSG_DONTWAIT, s.to)
		switch {
		case err == nil, errors.Is(err, unix.ENOBUFS):
			return nil
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			if _, err := sleepUntil(ctx, time.Now().Add(100*time.Microsecond)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("send: %s: %w", s.packet.flow, err)
		}
	}
}

// sleepUntil reports whether there was anything to wait for.
func sleepUntil(ctx context.Context, at time.Time) (bool, error) {
	slept := false
	for {
		if ctx.Err() != nil {
			return slept, context.Cause(ctx)
		}
		left := time.Until(at)
		if left <= 0 {
			return slept, nil
		}
		slept = true
		// In pieces, so that ctx is looked at.
		ts := unix.NsecToTimespec(int64(min(left, 50*time.Millisecond)))
		if err := unix.Nanosleep(&ts, nil); err != nil && !errors.Is(err, unix.EINTR) {
			return slept, os.NewSyscallError("nanosleep", err)
		}
	}
}

// sourceFor is the address that a namespace's routing gives to packets to dst.
func sourceFor(ctx context.Context, namespace string, dst netip.Addr) (netip.Addr, error) {
	var source netip.Addr
	err := namespaces.Do(ctx, namespace, func() error {
		family := unix.AF_INET
		var to unix.Sockaddr = &unix.SockaddrInet4{Port: 9, Addr: [4]byte(dst.AsSlice()[:4])}
		if dst.Is6() {
			family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: 9, Addr: dst.As16()}
		}
		fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return os.NewSyscallError("socket", err)
		}
		defer func() { _ = unix.Close(fd) }()
		// It sends nothing.
		if err := unix.Connect(fd, to); err != nil {
			return os.NewSyscallError("connect", err)
		}
		own, err := unix.Getsockname(fd)
		if err != nil {
			return os.NewSyscallError("getsockname", err)
		}
		switch a := own.(type) {
		case *unix.SockaddrInet4:
			source = netip.AddrFrom4(a.Addr)
		case *unix.SockaddrInet6:
			source = netip.AddrFrom16(a.Addr)
		}
		return nil
	})
	if err != nil {
		return source, fmt.Errorf("source address towards %s: %w", dst, err)
	}
	return source, nil
}
