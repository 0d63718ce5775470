package location

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/container"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/namespaces"
)

// standingTime bounds a look for the processes of a container.
const standingTime = time.Second

// Standing is nil while what t stands for is there: the groups of its packets, and the process
// or container by which it was found. A network namespace may outlive these, as one that
// has a name does. The error is fs.ErrNotExist when it is gone.
func Standing(t target.Target) error {
	if err := t.Standing(); err != nil {
		return err
	}
	p := t.Process
	if p.PID == 0 {
		return nil
	}
	err := container.Runs(p.PID, p.Started)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil // it cannot be told
	case p.Container == "":
		return fmt.Errorf("process %d has ended: %w", p.PID, fs.ErrNotExist)
	case elsewhere(p):
		return fmt.Errorf("container %s has ended: its process %d is gone, and none of its is in that network namespace: %w", container.Container{ID: p.Container}, p.PID, fs.ErrNotExist)
	}
	return nil
}

// elsewhere reports whether no process of a container is in its namespace any more: the first
// may end before the others do.
func elsewhere(p target.Process) bool {
	ctx, cancel := context.WithTimeoutCause(context.Background(), standingTime, errors.New("the processes could not be read in time"))
	defer cancel()
	c, err := container.First(ctx, p.Container)
	if err != nil {
		return errors.Is(err, container.ErrUnknown)
	}
	cookie, err := cookieOf(namespaces.OfProcess(c.PID))
	return err != nil || cookie != p.Cookie
}

// There is nil while the places of a lab's target are there, and ErrVanished when somebody took
// one away.
func There(ctx context.Context, t target.Target) error {
	for _, p := range []target.Place{t.To, t.From} {
		err := namespaces.Within(p.Namespace, func(s *namespaces.Session) error {
			if p.Cookie != 0 && s.Cookie() != p.Cookie {
				return fmt.Errorf("it was made anew: %w", fs.ErrNotExist)
			}
			h, err := s.Links(ctx)
			if err == nil {
				_, err = h.LinkByIndex(p.Index)
			}
			if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
				return fmt.Errorf("no such device: %w", fs.ErrNotExist)
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, namespaces.ErrStale) {
			return fault.WithHint(fmt.Errorf("target %s/%s: %w: the device %s in netns %s is gone: %w", t.Lab, t.Name, target.ErrVanished, p.Device, p.Namespace, err),
				"netemctl lab diff "+t.Lab+" shows what else is not as it was made")
		}
		if err != nil {
			return fmt.Errorf("target %s/%s: %w", t.Lab, t.Name, err)
		}
	}
	return nil
}

// led is the process by which what is in a namespace was found.
func led(pid int, started uint64, l link) target.Process {
	return target.Process{PID: pid, Started: started, Cookie: l.cookie}
}

// lasting is the name of a namespace that has one, since what is known by the path of a
// process is out of reach when that ends; ref itself else.
func lasting(ref string) string {
	of, err := os.Stat(ref)
	if err != nil {
		return ref
	}
	entries, err := os.ReadDir(namespaces.Dir)
	if err != nil {
		return ref
	}
	for _, e := range entries {
		if is, err := os.Stat(filepath.Join(namespaces.Dir, e.Name())); err == nil && os.SameFile(is, of) {
			return e.Name()
		}
	}
	return ref
}
