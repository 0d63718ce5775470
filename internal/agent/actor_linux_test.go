package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"netemd/internal/cli"
	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

// actorEnv makes the test program another process of a test: what it says is an actor as
// JSON.
const actorEnv = "NETEMD_TEST_AGENT_ACTOR"

// actor is what another process is to do.
type actor struct {
	// Netemctl runs netemctl with these arguments and exits with its code.
	Netemctl []string
	// Hold holds a fault at v0 of that namespace, by the agent at Socket, until it is killed.
	Hold, Socket string
	// Serve runs an agent with that state folder until it is killed.
	Serve string
	// Leave is a state folder: a fault is left there and in the namespace Hold.
	Leave string
	// Reduce gives up privileges and says what is left.
	Reduce bool
	// Sleep does nothing until it is killed.
	Sleep bool
}

func act(text string) int {
	var a actor
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		fmt.Println(err)
		return 99
	}
	switch {
	case len(a.Netemctl) > 0:
		return cli.Run(context.Background(), cli.Env{
			Args: a.Netemctl, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: func(string) string { return "" }, Now: time.Now,
			Dial: cli.Dial, Command: cli.RunCommand, StaleNamespaces: cli.StaleNamespaces, Namespaces: cli.Namespaces, Devices: cli.Devices,
			LookupHost: cli.LookupHost, SSHConnection: cli.SSHConnection,
		})
	case a.Reduce:
		text, err := reduced()
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Print(text)
		return 0
	case a.Leave != "":
		fmt.Println("ready", leaveJournal(a.Leave, a.Hold))
	case a.Hold != "":
		c, err := client.Open(client.Endpoint{Socket: a.Socket})
		if err == nil {
			_, err = c.Hold(context.Background(), held(a.Hold), nil)
		}
		fmt.Println("ready", err)
	case a.Serve != "":
		g, err := New(context.Background(), Config{StateDir: a.Serve, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Ready: func() { fmt.Println("ready", nil) }})
		if err != nil {
			fmt.Println("ready", err)
			return 1
		}
		fmt.Fprintln(os.Stderr, g.Serve(context.Background()))
	case a.Sleep:
		fmt.Println("ready", nil)
	}
	time.Sleep(time.Hour)
	return 0
}

// held is a fault that the tests of holding hold.
func held(ns string) fault.Spec {
	return fault.Spec{
		Engine: fault.EBPF, Packet: &qdisc.Netem{Loss: 100}, TTL: time.Minute,
		Selector: &target.Selector{Namespace: ns, Device: "v0", Protocol: 17, PeerPorts: []target.Ports{target.Port(5001)}},
	}
}

// command is the actor as a command, which nobody has started.
func (a actor) command(t testing.TB) *exec.Cmd {
	t.Helper()
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), actorEnv+"="+string(text))
	return cmd
}

// start starts the actor and waits until it is ready. It is killed at the test's end at
// the latest.
func (a actor) start(t testing.TB, by func(*exec.Cmd) error) *exec.Cmd {
	t.Helper()
	cmd := a.command(t)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = by(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { kill(cmd) })
	said := make([]byte, 256)
	n, _ := out.Read(said)
	if got := string(said[:n]); got != "ready <nil>\n" {
		t.Fatalf("the other process said %q", got)
	}
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// netemctl runs a command line as a user who is not root, and returns its exit code and
// what it said.
func netemctl(t testing.TB, uid uint32, groups []uint32, args ...string) (int, string) {
	t.Helper()
	cmd := actor{Netemctl: args}.command(t)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid, Groups: groups}}
	out, err := cmd.CombinedOutput()
	if _, ok := err.(*exec.ExitError); err != nil && !ok { //nolint:errorlint // exec's own
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// says reports whether all texts are in s.
func says(s string, texts ...string) bool {
	for _, text := range texts {
		if !strings.Contains(s, text) {
			return false
		}
	}
	return true
}
