package netemtest

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"

	"netemd/internal/container"
)

// newName is for what this process keeps on disk and others clear once it is dead: its number,
// when it began, which tells it from a later process with that number, and letters.
func newName() (string, error) {
	began, err := container.Started(os.Getpid())
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d-%d-%s", os.Getpid(), began, strings.ToLower(rand.Text()[:6])), nil
}

// dead reports whether the process that gave a name has ended. A name of an earlier netemd has
// no beginning: there the number decides. What is no such name is nobody's.
func dead(name string) bool {
	number, rest, _ := strings.Cut(name, "-")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return false
	}
	if text, _, ok := strings.Cut(rest, "-"); ok {
		began, err := strconv.ParseUint(text, 10, 64)
		return err == nil && errors.Is(container.Runs(pid, began), fs.ErrNotExist)
	}
	return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}
