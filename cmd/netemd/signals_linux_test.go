package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"netemd/internal/child"
)

// stopperEnv makes the test program a process that takes long to stop.
const stopperEnv = "NETEMD_TEST_STOPPER"

func TestMain(m *testing.M) {
	child.Run()
	switch {
	case os.Getenv(agentEnv) != "":
		os.Exit(run(strings.Fields(os.Getenv(agentEnv)), os.Stdout, os.Stderr))
	case os.Getenv(stopperEnv) == "":
		os.Exit(m.Run())
	}
	ctx, stop := untilSignal(context.Background())
	fmt.Println("ready")
	<-ctx.Done()
	stop()
	fmt.Println("clearing")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	fmt.Println("cleared")
	os.Exit(0)
}

// Closing a terminal sends SIGHUP twice, which does not keep the agent from clearing. A
// second signal of somebody who means it ends it.
func TestSecondSignal(t *testing.T) {
	for _, tt := range []struct {
		name   string
		then   []syscall.Signal
		clears bool
	}{
		{"hang-ups", []syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}, true},
		{"hang-up and interrupt", []syscall.Signal{syscall.SIGHUP, syscall.SIGINT}, false},
		{"termination", []syscall.Signal{syscall.SIGTERM}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), stopperEnv+"=1")
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Process.Kill() }()
			lines := bufio.NewScanner(out)
			says := func(want string) {
				t.Helper()
				if !lines.Scan() || lines.Text() != want {
					t.Fatalf("it said %q, want %q", lines.Text(), want)
				}
			}
			says("ready")
			_ = cmd.Process.Signal(syscall.SIGHUP)
			says("clearing")
			for _, s := range tt.then {
				time.Sleep(100 * time.Millisecond) // what a signal does is changed beside what is said
				_ = cmd.Process.Signal(s)
			}
			if tt.clears {
				_, _ = fmt.Fprintln(in)
				says("cleared")
			} else if lines.Scan() {
				t.Errorf("it said %q, want its end", lines.Text())
			}
			err = cmd.Wait()
			var exit *exec.ExitError
			if killed := errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(); killed == tt.clears || tt.clears && err != nil {
				t.Errorf("its end: %v", err)
			}
		})
	}
}
