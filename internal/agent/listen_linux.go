package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sys/unix"

	"netemd/internal/access"
	"netemd/internal/config"
)

// groupBits are the permissions of a file's group; with others everybody may open a socket.
const (
	groupBits = 0o070
	others    = 0o002
)

// listen opens the socket with its group and mode. Where the kernel is to keep others out, and
// this host has no such group, nobody has its permissions: the socket's group is 0 then, in
// which others than root can be. The
// state folder is ours, so a socket there is a dead agent's; elsewhere only a dead one is
// replaced.
func listen(path string, group string, mode config.Mode) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		_ = conn.Close()
		return nil, fmt.Errorf("listen %s: another program answers there: %w", path, unix.EADDRINUSE)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().Type() != os.ModeSocket {
		return nil, fmt.Errorf("listen %s: there is a file that is no socket: %w", path, os.ErrExist)
	}
	if err := removeSocket(path); err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	l, err := bindSocket(path)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	gid, ok := groupOf(group)
	if !ok && mode&others == 0 {
		mode &^= groupBits
	}
	if err := errors.Join(os.Chown(path, 0, gid), os.Chmod(path, os.FileMode(mode))); err != nil {
		return nil, errors.Join(fmt.Errorf("listen: %w", err), l.Close())
	}
	return l, nil
}

// bindSocket opens the socket for root alone, from its first moment on. The umask that this
// takes is of one thread, which ends here: other files are made meanwhile.
func bindSocket(path string) (l net.Listener, err error) {
	const private = 0o177
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and not unlocked
		if err = unix.Unshare(unix.CLONE_FS); err != nil {
			err = os.NewSyscallError("unshare", err)
			return
		}
		unix.Umask(private)
		l, err = net.Listen("unix", path)
	}()
	<-done
	return l, err
}

// listen opens the socket, and the TCP port where one is configured.
func (a *Agent) listen() error {
	s := a.cfg.Settings
	l, err := listen(a.cfg.Socket, s.Socket.Group, s.Socket.Mode)
	if err != nil {
		return err
	}
	a.listeners = append(a.listeners, l)
	if s.TCP.Listen == "" {
		return nil
	}
	if l, err = listenTCP(s.TCP.Listen); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	a.listeners = append(a.listeners, l)
	return nil
}

// maxTCP is how many TCP connections are open at once, before and after they have shown a
// certificate; more wait in the kernel. One that shows none goes after handshakeTime.
const maxTCP = 256

func listenTCP(address string) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, maxTCP), nil
}

// groupOf is the number of a group of this host, 0 for none.
func groupOf(name string) (gid int, ok bool) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, false
	}
	gid, err = strconv.Atoi(g.Gid)
	return gid, err == nil
}

// newPolicy makes the rules. Who is neither root nor in the socket's group has no right by
// opening it, where its mode lets everybody.
func newPolicy(cfg config.Config) (*access.Policy, error) {
	p, err := access.New(cfg.Allow)
	if err != nil {
		return nil, err
	}
	if cfg.Socket.Mode&others == 0 {
		return p, nil
	}
	gid, ok := groupOf(cfg.Socket.Group)
	return p.Members(access.Group{Name: cfg.Socket.Group, GID: uint32(gid), Exists: ok}), nil
}

// removeSocket removes a socket at which nobody answers any more.
func removeSocket(path string) error {
	st, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && st.Mode().Type() != os.ModeSocket {
		return nil
	}
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		return conn.Close()
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
