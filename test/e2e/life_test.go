package e2e

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

// testLife is an agent's life with its lab, which may not be there in the end: each part
// begins and ends with an agent that runs, the lab up, and no fault.
func testLife(t *testing.T, a *agent) {
	for _, part := range []struct {
		name  string
		test  func(*testing.T, *agent)
		alike bool // on every kernel
	}{
		{"second agent", testSecondAgent, true},
		{"stopped", testStopped, true},
		{"killed", testKilled, false},
		{"lab again", testLabAgain, true},
		{"cleanup", testCleanup, false},
	} {
		if part.alike && slow() && !long() {
			continue
		}
		if !t.Run(part.name, func(t *testing.T) { a.t = t; part.test(t, a) }) {
			a.t = t
			a.stop()
			a.cleanup()
			return // the rest would begin with something else
		}
	}
}

// testKilled: the flow is whole again at once on the ebpf engine, and the next start
// removes what is left and adopts the lab.
func testKilled(t *testing.T, a *agent) {
	for _, engine := range tried() {
		t.Run(engine, func(t *testing.T) {
			a.must("partition", "--target", "pg", "--engine", engine)
			a.kill()
			time.Sleep(100 * time.Millisecond)
			if open := reaches(t); open != (engine == "ebpf") {
				t.Errorf("100 ms after SIGKILL the flow is open: %v", open)
			}
			if r := a.ctl("list"); r.code != 5 {
				t.Errorf("list without an agent: exit code %d, want 5\n%s", r.code, r.stderr)
			}
			a.run() // the next start
			if !reaches(t) {
				t.Error("after the next start the flow is still cut")
			}
		})
	}
	if got := a.must("lab", "list").stdout; !strings.Contains(got, "pg") {
		t.Errorf("the lab was not adopted: %s", got)
	}
}

// testCleanup: without an agent, a cleanup removes what is left of a killed one.
func testCleanup(t *testing.T, a *agent) {
	a.must("partition", "--target", "pg", "--engine", engine())
	a.kill()
	clean := run(t, exec.Command(filepath.Join(bin, "netemd"), "cleanup", "--state-dir", a.stateDir))
	if clean.code != 0 || !strings.Contains(clean.stdout, "lab pg") {
		t.Errorf("cleanup: exit code %d, %s%s", clean.code, clean.stdout, clean.stderr)
	}
}

// reaches reports whether the client can open a connection to PostgreSQL within
// 900 ms: less than a lost SYN takes to be sent again.
func reaches(t *testing.T) bool {
	t.Helper()
	return namespaces.Do(t.Context(), "netem-pg-client", func() error {
		conn, err := net.DialTimeout("tcp", "10.77.0.2:5432", 900*time.Millisecond)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}) == nil
}

// testStopped: SIGSTOP opens an ebpf fault within 100 ms, and SIGCONT puts
// it back in force.
func testStopped(t *testing.T, a *agent) {
	a.must("partition", "--target", "pg", "--engine", "ebpf")
	if reaches(t) {
		t.Fatal("a partition lets a connection through")
	}
	if err := a.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	if !reaches(t) {
		t.Error("100 ms after SIGSTOP the flow is still cut")
	}
	began := time.Now()
	r := a.ctl("list")
	if r.code != 5 || time.Since(began) > testenv.Slower(4*time.Second) {
		t.Errorf("list with a stopped agent: exit code %d after %v, want 5 after about 2 s\n%s", r.code, time.Since(began), r.stderr)
	}
	if err := a.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(testenv.Slower(100 * time.Millisecond))
	if reaches(t) {
		t.Error("after SIGCONT the fault is no longer in force")
	}
	a.must("clear", "--all")
}

// testLabAgain: a lab that was taken down can be made and impaired again.
func testLabAgain(t *testing.T, a *agent) {
	a.must("lab", "down", "pg")
	a.must("lab", "up", "pg")
	a.must("partition", "--target", "pg")
	if reaches(t) {
		t.Error("a partition lets a connection through")
	}
	a.must("clear", "--all")
	if !reaches(t) {
		t.Error("the flow is still cut after a clear")
	}
}

// testSecondAgent: one state folder has one agent, and another folder's agent does
// not touch the first one's lab.
func testSecondAgent(t *testing.T, a *agent) {
	r := run(t, exec.Command(filepath.Join(bin, "netemd"), "--state-dir", a.stateDir))
	if r.code != 1 || !strings.Contains(r.stderr, "in use by another agent") {
		t.Errorf("a second agent: exit code %d, %s", r.code, r.stderr)
	}
	r = run(t, exec.Command(filepath.Join(bin, "netemd"), "cleanup", "--state-dir", a.stateDir))
	if r.code != 1 || !reaches(t) {
		t.Errorf("cleanup beside a living agent: exit code %d, %s", r.code, r.stderr)
	}
	dir := t.TempDir()
	other := exec.Command(filepath.Join(bin, "netemd"), "--state-dir", filepath.Join(dir, "s"))
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Signal(syscall.SIGTERM)
		_ = other.Wait()
		if !reaches(t) {
			t.Error("the second agent's end took the first one's lab")
		}
	}()
	socket := filepath.Join(dir, "s", "netemd.sock")
	for range 500 {
		if ctl(t, "list", "--socket", socket).code == 0 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r := ctl(t, "lab", "up", "pg", "--socket", socket); r.code != 1 || !strings.Contains(r.stderr, "netem-pg-") {
		t.Errorf("the same lab in a second agent: exit code %d, %s", r.code, r.stderr)
	}
}

// testTwoClients: of 8 that ask for the same thing at once, one gets it.
func testTwoClients(t *testing.T, a agent) {
	var wg sync.WaitGroup
	codes := make([]int, 8)
	for i := range codes {
		wg.Go(func() { codes[i] = a.ctl("loss", "1%", "--target", "pg").code })
	}
	wg.Wait()
	won := 0
	for _, c := range codes {
		switch c {
		case 0:
			won++
		case 1:
		default:
			t.Errorf("exit code %d, want 0 or 1", c)
		}
	}
	if won != 1 {
		t.Errorf("%d got the fault, want 1", won)
	}
	if list := data[faultList](t, a.must("list", "-o", "json"), "faults"); len(list.Faults) != 1 {
		t.Errorf("list: %+v", list)
	}
}

// testNotAllowed: a user outside the group is told so and how to come into it, with exit code 7.
func testNotAllowed(t *testing.T, a agent) {
	open, err := os.MkdirTemp("", "netemd-e2e-bin-") // t.TempDir lets no other user through
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(open) }()
	for _, p := range []string{"netemctl", "netemd"} {
		text, err := os.ReadFile(filepath.Join(bin, p))
		if err := errors.Join(err, os.WriteFile(filepath.Join(open, p), text, 0o755), os.Chmod(open, 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(filepath.Join(open, "netemctl"), "list", "--socket", a.socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if r := run(t, cmd); r.code != 7 || !strings.Contains(r.stderr, "denied") || !strings.Contains(r.stderr, "usermod -aG netem nobody") {
		t.Errorf("exit code %d, %s", r.code, r.stderr)
	}
	cmd = exec.Command(filepath.Join(open, "netemd"), "--state-dir", filepath.Join(open, "s"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if r := run(t, cmd); r.code != 7 {
		t.Errorf("netemd without root: exit code %d, %s", r.code, r.stderr)
	}
}

// testAuto holds auto's choice, and its reason, to the kernel.
func testAuto(t *testing.T, a agent) {
	want := "ebpf"
	if len(engines()) > 1 {
		testenv.Netem(t)
		want = "netem"
	}
	a.must("loss", "1%", "--target", "pg")
	list := data[faultList](t, a.must("list", "-o", "json"), "faults")
	if len(list.Faults) != 1 || list.Faults[0].Engine != want {
		t.Errorf("list: %+v, want engine %s", list, want)
	}
	if got := a.must("show", id(t, a)).stdout; !strings.Contains(got, "sch_netem") {
		t.Errorf("show does not say why %s was taken:\n%s", want, got)
	}
}
