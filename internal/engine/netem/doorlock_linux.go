package netem

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// doorWait is how long another agent may have the clsact of a device for itself.
	// Whoever holds it longer stands still, or is none; then it is done all the same,
	// with a warning, and what may go wrong is seen at the next read.
	doorWait = 3 * time.Second
	doorTick = 5 * time.Millisecond
)

// alone calls f while no other agent does so for that device: f looks at its clsact,
// adds one and a filter, or deletes one that is empty. The lock is an abstract Unix
// socket, which the kernel keeps for each network namespace and takes back when its
// process ends, so that agents which share a device meet there though they may share no
// folder.
func (c *conn) alone(l link, f func() error) error {
	unlock, err := c.lockDoor(l, doorWait)
	if err != nil {
		return fmt.Errorf("netem: lock the clsact of %s: %w", l.name, err)
	}
	defer unlock()
	return f()
}

// lockDoor locks, or says that it did not within wait.
func (c *conn) lockDoor(l link, wait time.Duration) (unlock func(), err error) {
	fd := -1
	err = c.ns.Do(context.Background(), func() (err error) {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	at := &unix.SockaddrUnix{Name: fmt.Sprintf("@%s/clsact/%d", recordVersion, l.index)}
	for end := time.Now().Add(wait); ; time.Sleep(doorTick) {
		err = unix.Bind(fd, at)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, errors.Join(err, unix.Close(fd))
		}
		if time.Now().After(end) {
			c.log.Warn("netem: another agent keeps the clsact of a device locked, and stands still, or is none; it is changed all the same: "+
				"where that agent goes on with its own change, the clsact may go with a filter that was just set, and its fault is lost",
				"device", l.name, "namespace", c.ns.Name(), "waited", wait)
			break
		}
	}
	return func() { _ = unix.Close(fd) }, nil
}
