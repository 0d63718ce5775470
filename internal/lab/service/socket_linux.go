package service

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// maxCall bounds a line of the socket, maxNews what a caller may leave unread.
const (
	maxCall = 64 << 10
	maxNews = 64
)

// caller is a connection to the keeper's socket. until and left belong to the keeper's thread.
type caller struct {
	c net.Conn
	// until is the deadline of what it asked for, CLOCK_MONOTONIC; 0 for none.
	until int64
	// left says that the connection has ended.
	left bool
	out  chan News
}

// tell never waits: who does not read is cut off.
func (c *caller) tell(n News) {
	if c.left {
		return
	}
	select {
	case c.out <- n:
	default:
		_ = c.c.Close()
	}
}

// listen takes calls at the service's socket, until the keeper ends: it is in a folder of
// root's, for root alone. The path goes by the folder's descriptor, since one of a socket has
// 107 bytes at most.
func (k *keeper) listen() error {
	folder, err := os.Open(k.order.Folder)
	if err != nil {
		return err
	}
	path := fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), socketName(k.order.Name))
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// No window in which others could open it: nobody else has the rights of the mask.
	old := unix.Umask(0o177)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	unix.Umask(old)
	if err != nil {
		return err
	}
	k.folder, k.listener = folder, l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return // it was closed
			}
			go k.serve(c)
		}
	}()
	return nil
}

// serve hands the lines of a connection to the keeper's thread.
func (k *keeper) serve(c net.Conn) {
	by := &caller{c: c, out: make(chan News, maxNews)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for e := json.NewEncoder(c); ; {
			select {
			case n := <-by.out:
				if e.Encode(n) != nil {
					_ = c.Close()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	lines := bufio.NewScanner(io.Reader(c))
	lines.Buffer(nil, maxCall)
	for lines.Scan() {
		var call Call
		if json.Unmarshal(lines.Bytes(), &call) != nil {
			break
		}
		k.call(ctx, func() { k.obey(by, call) })
	}
	k.call(ctx, func() {
		by.left = true
		if k.outage != nil && k.outage.by == by {
			k.due()
		}
	})
	cancel()
	<-written
	_ = c.Close()
}

// closeSocket takes no more calls, after what is still to be told has been.
func (k *keeper) closeSocket() {
	if k.listener == nil {
		return
	}
	_ = k.listener.Close() // which removes it
	_ = k.folder.Close()
}
