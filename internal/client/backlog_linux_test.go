package client

import (
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"netemd/internal/fault"
)

// TestFullBacklog: an agent that does not accept has a socket all the same.
func TestFullBacklog(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fd)
	socket := filepath.Join(t.TempDir(), "full")
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrUnix{Name: socket}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	first, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	_, err = Open(Endpoint{Socket: socket})
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "too many connections that the agent has not accepted yet") || !strings.Contains(fault.HintOf(err), "hung or overloaded") {
		t.Errorf("%v, hint %q", err, fault.HintOf(err))
	}
}
