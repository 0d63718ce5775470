package probe

import "golang.org/x/sys/unix"

// socketSettings asks a connected TCP socket for its settings; nil when it cannot.
func socketSettings(fd int) *SocketSettings {
	var s SocketSettings
	var err error
	if s.Congestion, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err != nil {
		return nil
	}
	get := func(level, option int) int {
		v, e := unix.GetsockoptInt(fd, level, option)
		if e != nil && err == nil {
			err = e
		}
		return v
	}
	s.UserTimeoutMS = get(unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	s.NoDelay = get(unix.IPPROTO_TCP, unix.TCP_NODELAY) != 0
	if s.KeepAlive = get(unix.SOL_SOCKET, unix.SO_KEEPALIVE) != 0; s.KeepAlive {
		s.KeepIdle = get(unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		s.KeepInterval = get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL)
		s.KeepCount = get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT)
	}
	if err != nil {
		return nil
	}
	return &s
}
