package netemtest_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"netemd/internal/agent"
	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/testenv"
	"netemd/netemtest"
	"netemd/qdisc"
)

// serveAgent runs an agent of its own, as one that runs already, and returns its socket.
func serveAgent(t *testing.T) (socket string, stop func()) {
	t.Helper()
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	agent.RaiseProcs()
	a, err := agent.New(t.Context(), agent.Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx) }()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			cancel()
			if err := <-served; err != nil {
				t.Errorf("the agent's end: %v", err)
			}
		}
	}
	t.Cleanup(stop)
	return filepath.Join(dir, "netemd.sock"), stop
}

// What a session of TestMain brings up is shared by the tests, whose faults at it stand one after
// the other; by a running agent as by the own one.
func TestSharedLab(t *testing.T) {
	socket, _ := serveAgent(t)
	for name, config := range map[string]netemtest.Config{"running": {Socket: socket}, "own": {Own: true}} {
		t.Run(name, func(t *testing.T) {
			s, err := netemtest.Start(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			lab, err := s.Lab(t.Context(), duo)
			if err != nil {
				t.Fatal(errors.Join(err, s.Close()))
			}
			web(t, lab)
			inForce := make(chan string, 8)
			done := make(chan *recorder)
			for _, name := range []string{"A", "B", "C"} {
				go func() {
					done <- run(t, t.Name()+name, func(r *recorder) {
						netemtest.Partition(r, "web").AllowUnmet()
						inForce <- name
						time.Sleep(50 * time.Millisecond)
						inForce <- name
					})
				}()
			}
			for range 3 {
				(<-done).wants(t, false)
			}
			for range 3 {
				if first, second := <-inForce, <-inForce; first != second {
					t.Error("two faults stood at a time")
				}
			}
			// The session's own, without a test.
			f, err := s.Inject(t.Context(), netemtest.Spec{Target: "web", Netem: qdisc.Netem{Loss: 100}})
			if err != nil {
				t.Fatal(errors.Join(err, s.Close()))
			}
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			if _, err := get(ctx, lab); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("through a partition: %v", err)
			}
			if st, err := f.Stats(t.Context()); err != nil || st.Lost == 0 {
				t.Errorf("stats %v, %v", st, err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			if err := errors.Join(s.Close(), f.Clear(t.Context())); err != nil {
				t.Errorf("a second end: %v", err)
			}
			if left, _ := filepath.Glob("/run/netns/netem-" + lab.Name() + "-*"); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			func() {
				defer func() {
					if r := recover(); r == nil || !strings.Contains(r.(string), `no target "x"`) {
						t.Errorf("panic %v", r)
					}
				}()
				lab.Addr("x")
			}()
		})
	}
}

// An agent that goes away fails the test that had a fault of it.
func TestAgentStops(t *testing.T) {
	socket, stop := serveAgent(t)
	p := newPlace(t)
	s, err := netemtest.Start(t.Context(), netemtest.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	run(t, t.Name()+"Inner", func(r *recorder) {
		netemtest.Inject(r, p.at(qdisc.Netem{Loss: 1})).AllowUnmet()
		stop()
	}).wants(t, true, "was not in force as asked for all the time", "stop")
	_ = s.Close()
}

// What somebody else does to a test's fault fails the test.
func TestOthersChange(t *testing.T) {
	socket, _ := serveAgent(t)
	other, err := client.Open(client.Endpoint{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	p := newPlace(t)
	s, err := netemtest.Start(t.Context(), netemtest.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	for _, tt := range []struct {
		name string
		do   func(id string) error
		want string
	}{
		{"changed", func(id string) error {
			_, err := other.Change(t.Context(), id, qdisc.Patch{Loss: new(qdisc.Percent(3))})
			return err
		}, "changed by somebody else"},
		{"cleared", func(id string) error {
			_, err := other.Clear(t.Context(), fault.Selector{ID: id})
			return err
		}, "cleared"}, // by somebody else; or, where the look at its end was the quicker one, a moment ago
	} {
		run(t, t.Name()+tt.name, func(r *recorder) {
			w := netemtest.Watch(r)
			f := netemtest.Inject(r, p.at(qdisc.Netem{Loss: 1})).AllowUnmet()
			f.Change(qdisc.Netem{Loss: 2})
			if err := tt.do(f.ID()); err != nil {
				t.Fatal(err)
			}
			// Its own change is another event, and so is what the fault before this one ended by.
			for e := w.Next(tt.name, 10*time.Second); e.ID != f.ID() || tt.name == "changed" && e.What != "loss 3% to "+f.Target(); {
				e = w.Next(tt.name, 10*time.Second)
			}
		}).wants(t, true, tt.want)
		run(t, t.Name()+tt.name+"Own", func(r *recorder) {
			f := netemtest.Inject(r, p.at(qdisc.Netem{Loss: 1})).AllowUnmet()
			f.Change(qdisc.Netem{Loss: 2})
		}).wants(t, false)
	}
}

func TestNoAgent(t *testing.T) {
	_, err := netemtest.Start(t.Context(), netemtest.Config{Socket: filepath.Join(t.TempDir(), "none")})
	if err == nil || !strings.Contains(err.Error(), "nothing listens at") {
		t.Errorf("start: %v", err)
	}
}

// Without root and an agent a test is skipped, and says how to run it; where that is not to be,
// it fails.
func TestWithoutRoot(t *testing.T) {
	testenv.Root(t)
	for _, tt := range []struct{ require, want string }{
		{"", "--- SKIP: TestVictim"}, {"0", "--- SKIP: TestVictim"}, {"1", "--- FAIL: TestVictim"},
	} {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestVictim$", "-test.v")
		cmd.Env = append(os.Environ(), victimEnv+"=pass", "NETEMTEST_REQUIRE="+tt.require, "NETEMD_SOCKET=", "HOME=/")
		cmd.Dir = "/"
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		out, _ := cmd.CombinedOutput()
		if s := string(out); !strings.Contains(s, tt.want) || !strings.Contains(s, "there is no agent, and to be one takes root") || !strings.Contains(s, "go test -exec sudo") {
			t.Errorf("NETEMTEST_REQUIRE=%q:\n%s", tt.require, s)
		}
	}
}
