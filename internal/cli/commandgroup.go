package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"
	"time"
)

// groupGrace is how long a command has to end after SIGTERM, before it is killed.
const groupGrace = 5 * time.Second

// keeperScript waits until its standard input ends, which netemctl's end brings about however
// it ends, and kills its group.
const keeperScript = `trap '' TERM INT HUP; read _; kill -KILL 0`

// RunGroup runs c as RunCommand does, but in a process group of its own, which ends with it:
// nothing that it started there outlives it, nor netemctl, were that killed. When ctx ends, the
// group has SIGTERM, and SIGKILL 5 s later; the error is ctx's cause then. The terminal's
// signals do not reach it.
func RunGroup(ctx context.Context, c Command) (int, error) {
	keeper := exec.Command("sh", "-c", keeperScript)
	keeper.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	life, err := keeper.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := keeper.Start(); err != nil {
		return 0, fmt.Errorf("run: the keeper of the command's group: %w", err)
	}
	group := keeper.Process.Pid
	defer func() {
		_ = syscall.Kill(-group, syscall.SIGKILL) // the keeper is in it, so there is one
		_ = keeper.Wait()
		_ = life.Close()
	}()
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	cmd.Env = append(cmd.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: group}
	cmd.WaitDelay = time.Second // what it left behind may hold its output open
	if err := start(cmd, c.Namespace); err != nil {
		return startFailed(c, err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return endedGroup(cmd, err)
	case <-ctx.Done():
	}
	_ = syscall.Kill(-group, syscall.SIGTERM)
	kill := time.AfterFunc(groupGrace, func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
	defer kill.Stop()
	code, err := endedGroup(cmd, <-done)
	return code, cmp.Or(context.Cause(ctx), err)
}

func endedGroup(cmd *exec.Cmd, err error) (int, error) {
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return ended(cmd, err)
}
