package child

import (
	"os"
	"strconv"
	"syscall"
)

// lifelineVariable names the environment variable that carries the lifeline's
// descriptor.
const lifelineVariable = "NETEMD_CHILD_LIFELINE"

// exitOrphaned is the exit code of a child whose parent has ended.
const exitOrphaned = 3

// watchLifeline ends this process as soon as the process that started it has ended.
// The parent alone holds the other end of the pipe, and the kernel closes it however
// the parent ends. (Pdeathsig would fire at the end of the parent's thread.)
func watchLifeline() {
	fd, err := strconv.Atoi(os.Getenv(lifelineVariable))
	if err != nil {
		return
	}
	_ = os.Unsetenv(lifelineVariable)
	syscall.CloseOnExec(fd)
	lifeline := os.NewFile(uintptr(fd), "lifeline")
	go func() {
		var b [1]byte
		for {
			if n, err := lifeline.Read(b[:]); n == 0 && err != nil {
				os.Exit(exitOrphaned)
			}
		}
	}()
}
