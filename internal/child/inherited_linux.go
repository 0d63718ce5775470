package child

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// KeepInherited keeps to this process the descriptors above standard error that it was
// started with, such as a file that a shell had open: what it starts, perhaps as another
// user, does not get them. Call it before anything is started. It needs /proc.
func KeepInherited() error {
	folder, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	defer func() { _ = folder.Close() }()
	names, err := folder.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("inherited descriptors: %w", err)
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return nil
}
