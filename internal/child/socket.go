package child

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// ListenUnix listens on path, which only the owner may use; a stale socket there is replaced. It
// sets the process's mask for a moment, so that nothing else may make a file meanwhile.
func ListenUnix(path string) (*net.UnixListener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == fs.ModeSocket {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the stale socket: %w", err)
		}
	}
	// The mode must be right from the start, so not by chmod.
	old := syscall.Umask(0o177)
	defer syscall.Umask(old)
	return net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
}
