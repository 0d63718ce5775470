package e2e

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	netemv1 "netemd/api/netem/v1"
)

// testRawRequests: requests that no netemctl sends are refused, and the agent lives.
func testRawRequests(t *testing.T, a agent) {
	conn, err := grpc.NewClient("unix://"+a.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	faults := netemv1.NewFaultsClient(conn)
	a.must("loss", "1%", "--target", "pg")
	for name, call := range map[string]func() error{
		"apply without a spec": func() error { _, err := faults.Apply(ctx, &netemv1.ApplyRequest{}); return err },
		"apply with a NUL": func() error {
			return apply(ctx, faults, &netemv1.FaultSpec{Target: "p\x00g", Packet: &netemv1.Netem{}})
		},
		"apply with a path":        func() error { return apply(ctx, faults, &netemv1.FaultSpec{Target: "../pg", Packet: &netemv1.Netem{}}) },
		"apply an unknown engine":  func() error { return apply(ctx, faults, &netemv1.FaultSpec{Target: "pg", Engine: 99, Packet: loss(1)}) },
		"apply a negative ttl":     func() error { return apply(ctx, faults, &netemv1.FaultSpec{Target: "pg", TtlNs: -1, Packet: loss(1)}) },
		"apply nothing to a flow":  func() error { return apply(ctx, faults, &netemv1.FaultSpec{Target: "pg", Packet: &netemv1.Netem{}}) },
		"clear nothing in special": func() error { _, err := faults.Clear(ctx, &netemv1.ClearRequest{}); return err },
		"a megabyte of name": func() error {
			return apply(ctx, faults, &netemv1.FaultSpec{Target: strings.Repeat("x", 2<<20), Packet: loss(1)})
		},
	} {
		switch code := status.Code(call()); code {
		case codes.InvalidArgument, codes.ResourceExhausted:
		default:
			t.Errorf("%s: %v, want it refused", name, code)
		}
	}
	// A change of nothing changes nothing.
	if _, err := faults.Change(ctx, &netemv1.ChangeRequest{Id: id(t, a)}); err != nil {
		t.Errorf("change without a packet: %v", err)
	}
	a.must("list")
}

func apply(ctx context.Context, c netemv1.FaultsClient, s *netemv1.FaultSpec) error {
	_, err := c.Apply(ctx, &netemv1.ApplyRequest{Spec: s})
	return err
}

func loss(percent float64) *netemv1.Netem { return &netemv1.Netem{LossPercent: &percent} }

// testDeadProxy: a toxic on a proxy that died is lost, and can be cleared.
func testDeadProxy(t *testing.T, a agent) {
	a.must("toxic", "latency", "--latency", "10ms", "--target", "pg")
	labs := data[struct {
		Labs []struct {
			Nodes []struct {
				Services []struct {
					Name string `json:"name"`
					PID  int    `json:"pid"`
				} `json:"services"`
			} `json:"nodes"`
		} `json:"labs"`
	}](t, a.must("lab", "list", "-o", "json"), "labs")
	killed := false
	for _, n := range labs.Labs[0].Nodes {
		for _, s := range n.Services {
			if s.Name == "proxy" {
				killed = syscall.Kill(s.PID, syscall.SIGKILL) == nil
			}
		}
	}
	if !killed {
		t.Fatalf("no proxy was killed: %+v", labs)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		list := data[faultList](t, a.must("list", "-o", "json"), "faults")
		if len(list.Faults) == 1 && list.Faults[0].State == "lost" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("list: %+v, want the toxic lost", list)
		}
	}
	a.must("clear", "--all")
}

// TestSocketsOfOthers: a start that fails, and a cleanup, remove nothing that is not
// this agent's.
func TestSocketsOfOthers(t *testing.T) {
	a := start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	netemd := func(args ...string) result { return run(t, exec.Command(filepath.Join(bin, "netemd"), args...)) }
	other := filepath.Join(dir, "other")
	if r := netemd("--state-dir", other, "--socket", a.socket); r.code != 1 || !strings.Contains(r.stderr, "another program answers") {
		t.Errorf("another agent's socket: exit code %d, %s", r.code, r.stderr)
	}
	if r := netemd("--state-dir", other, "--socket", file); r.code != 1 {
		t.Errorf("a file for a socket: exit code %d, %s", r.code, r.stderr)
	}
	netemd("cleanup", "--state-dir", other, "--socket", file)
	if text, err := os.ReadFile(file); err != nil || string(text) != "mine" {
		t.Errorf("the file is gone: %v", err)
	}
	if conn, err := net.Dial("unix", a.socket); err != nil {
		t.Errorf("the first agent's socket is gone: %v", err)
	} else {
		_ = conn.Close()
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if r := netemd("--state-dir", open); r.code != 7 {
		t.Errorf("a state folder that anybody may write: exit code %d, %s", r.code, r.stderr)
	}
}

// TestTerminalCloses: SIGHUP ends the agent in order.
func TestTerminalCloses(t *testing.T) {
	a := start(t)
	if err := a.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("after SIGHUP: %v, %s", err, a.log)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(a.cmd.Process.Pid)); err == nil {
		t.Error("it still runs")
	}
}
