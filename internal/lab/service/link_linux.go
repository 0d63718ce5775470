package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// Link is a connection to a service's keeper, by which the service is made to fail. When it
// ends, by Close or with this process, the keeper puts the service back. It is safe for
// concurrent use.
type Link struct {
	c    net.Conn
	mu   sync.Mutex // of writing
	news chan News
}

// Dial opens a link to the service of that name with that folder. The error is fs.ErrNotExist
// where no keeper takes calls: the service has ended, or an earlier netemd started it.
func Dial(folder, name string) (*Link, error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	c, err := net.Dial("unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), socketName(name)))
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("its keeper has ended: %w", fs.ErrNotExist)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("it takes no orders, it has ended or an earlier netemd started it (take its lab down and up again): %w", fs.ErrNotExist)
	case err != nil:
		return nil, err
	}
	l := &Link{c: c, news: make(chan News, maxNews)}
	go func() {
		defer close(l.news)
		for d := json.NewDecoder(c); ; {
			var n News
			if d.Decode(&n) != nil {
				return
			}
			l.news <- n
		}
	}()
	return l, nil
}

// Call sends an order. What comes of it is told by News.
func (l *Link) Call(c Call) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = l.c.Write(append(line, '\n'))
	return err
}

// News are what the keeper tells, in order; closed when the link has ended. They must be read.
func (l *Link) News() <-chan News { return l.news }

// Close ends the link.
func (l *Link) Close() error { return l.c.Close() }

// Return has the service put back, whoever took it away, and returns when it is back. One
// that no keeper keeps is fs.ErrNotExist.
func Return(ctx context.Context, folder, name string) error {
	l, err := Dial(folder, name)
	if err != nil {
		return err
	}
	defer func() {
		_ = l.Close()
		for range l.News() {
		}
	}()
	if err := l.Call(Call{Number: 1, Do: Back}); err != nil {
		return err
	}
	for {
		select {
		case n, ok := <-l.News():
			switch {
			case !ok:
				return fmt.Errorf("its keeper has ended: %w", fs.ErrNotExist)
			case n.What == Ready:
				return nil
			case n.What == Failed, n.What == Refused:
				return errors.New(n.Error)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
