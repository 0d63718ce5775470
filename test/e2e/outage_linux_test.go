package e2e

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"netemd/internal/failpoint"
	"netemd/internal/testenv"
)

const outageLab = `
lab: out
nodes:
  client: {}
  a: {services: [{name: api-a, kind: http-echo, port: 8080}]}
  b: {services: [{name: api-b, kind: http-echo, port: 8080}]}
links:
  - {a: client, b: a}
  - {a: client, b: b}
`

// outageShown is what show -o json has of an outage.
type outageShown struct {
	ID     string `json:"id"`
	State  string `json:"state"`
	Outage struct {
		Run struct {
			Done, Skipped, Failed int
			Down                  []string
			Over                  bool
			Strikes               []struct {
				Service  string
				PID      int    `json:"pid"`
				NewPID   int    `json:"new_pid"`
				OutageNS *int64 `json:"outage_ns"`
				DownNS   *int64 `json:"down_monotonic_ns"`
			}
		}
	}
}

// outageTurn is held by the test that has the lab up: its namespaces are there once.
var outageTurn sync.Mutex

// outageFile writes the lab's file, and waits for other tests with that lab. It comes before
// whatever makes the lab, so that this is gone when the next one begins.
func outageFile(t *testing.T) string {
	outageTurn.Lock()
	t.Cleanup(outageTurn.Unlock)
	t.Helper()
	file := filepath.Join(t.TempDir(), "out.yaml")
	if err := os.WriteFile(file, []byte(outageLab), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// keeperState is what the keeper of a service of that lab tells.
func (a *agent) keeperState(service string) (s struct {
	Main   struct{ PID int }
	Outage string
	Ended  *time.Time
},
) {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join(a.stateDir, "labs", "out", service, service+".state.json"))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

// runs waits until a service is there and runs, also without an agent.
func (a *agent) runs(service string) {
	a.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		s := a.keeperState(service)
		stat, err := os.ReadFile(filepath.Join("/proc", itoa(s.Main.PID), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ")
		if err == nil && s.Outage == "" && s.Ended == nil && rest != "" && rest[0] != 'T' && rest[0] != 'Z' {
			return
		}
		if time.Now().After(end) {
			a.t.Fatalf("%s does not run: %+v, %q", service, s, rest)
		}
	}
}

func itoa(n int) string { b, _ := json.Marshal(n); return string(b) }

func (a *agent) shown(id string) outageShown {
	a.t.Helper()
	return data[outageShown](a.t, a.must("show", id, "-o", "json"), "fault")
}

// TestOutages has services fail and come back, with all that ends a fault.
func TestOutages(t *testing.T) {
	t.Parallel()
	file := outageFile(t)
	a := start(t)
	a.must("lab", "up", file)
	// Once: it ends by itself when the service is back, and its record can be seen then.
	id := data[outageShown](t, a.must("process", "kill", "api-a", "--down", "300ms", "-o", "json"), "fault").ID
	var f outageShown
	for end := time.Now().Add(30 * time.Second); f.State != "expired" && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		f = a.shown(id)
	}
	if f.State != "expired" || !f.Outage.Run.Over || len(f.Outage.Run.Strikes) != 1 {
		t.Fatalf("%+v", f)
	}
	one := f.Outage.Run.Strikes[0]
	if one.Service != "out/api-a" || one.PID == one.NewPID || one.NewPID != a.keeperState("api-a").Main.PID || one.OutageNS == nil || *one.OutageNS < 3e8 || one.DownNS == nil {
		t.Errorf("%+v", one)
	}
	// Until it is cleared, by the service; another one of the same service is a conflict.
	for _, what := range []string{"kill", "stop"} {
		id = data[outageShown](t, a.must("process", what, "out/api-a", "--down", "0s", "-o", "json"), "fault").ID
		if f := a.shown(id); f.State != "active" || len(f.Outage.Run.Down) != 1 {
			t.Errorf("%s: %+v", what, f)
		}
		if s := a.keeperState("api-a"); s.Outage != what {
			t.Errorf("%s: state %+v", what, s)
		}
		if r := a.ctl("process", "restart", "api-a", "api-b"); r.code != 1 || !strings.Contains(r.stderr, "service out/api-a is made to fail by fault "+id) {
			t.Errorf("beside a %s: %d %s", what, r.code, r.stderr)
		}
		a.must("clear", "--target", "api-a")
		a.runs("api-a")
	}
	// A command's end.
	if r := a.must("process", "stop", "api-a", "api-b", "--down", "100ms", "--every", "200ms", "--seed", "3", "--", "sleep", "1"); !strings.Contains(r.stderr, "stopped at") {
		t.Errorf("what happened is not told:\n%s", r.stderr)
	}
	a.runs("api-a")
	a.runs("api-b")
	// Its time to live, kept by the service's keeper where the agent stands still.
	a.must("process", "kill", "api-a", "--down", "0s", "--ttl", "1s")
	_ = a.cmd.Process.Signal(syscall.SIGSTOP)
	a.runs("api-a")
	_ = a.cmd.Process.Signal(syscall.SIGCONT)
	// What goes with its lab; what is not there.
	a.must("process", "stop", "api-a", "--down", "0s")
	a.must("lab", "down", "out")
	if r := a.must("list"); strings.Contains(r.stdout, "api-a") {
		t.Errorf("it outlived its lab:\n%s", r.stdout)
	}
	if r := a.ctl("process", "kill", "out/api-a"); r.code != 1 || !strings.Contains(r.stderr, "unknown service") {
		t.Errorf("without its lab: %d %s", r.code, r.stderr)
	}
}

// TestOutageCrash kills the agent at each step of an outage's life: the services run again,
// without an agent, after the next start, and nothing is left after a cleanup.
func TestOutageCrash(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	folder, err := fragileProgram()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "netemd")
	file := outageFile(t)
	for i, step := range []string{
		"", "lease.apply.intended", "lease.apply.place", "lease.apply.enforced", "lease.apply.recorded", "lease.expire.begin", "lease.clear.begin", "lease.clear.restored", "lease.clear.recorded",
	} {
		for _, what := range []string{"kill", "stop", "restart"} {
			if (i+len(what))%2 == 1 && testing.Short() {
				continue
			}
			name := step
			if step == "" {
				name = "SIGKILL"
			}
			t.Run(name+" "+what, func(t *testing.T) {
				h := home{program: program}
				if step != "" {
					h.env = []string{failpoint.Env + "=" + step}
				}
				a := startAt(t, h)
				a.must("lab", "up", file)
				down := []string{"--down", "0s"}
				if what == "restart" {
					down = []string{"--down", "1h"}
				}
				if strings.HasPrefix(step, "lease.expire") {
					down = append(down, "--ttl", "1s")
				}
				a.ctl(append([]string{"process", what, "api-a"}, down...)...)
				if strings.HasPrefix(step, "lease.clear") {
					a.ctl("clear", "--all")
				}
				if step == "" {
					_ = a.cmd.Process.Kill()
				}
				died := make(chan struct{})
				go func() {
					_ = a.cmd.Wait() // it was killed
					close(died)
				}()
				select {
				case <-died:
				case <-time.After(30 * time.Second):
					t.Errorf("%s was not passed", step)
					_ = a.cmd.Process.Kill()
					<-died
				}
				a.runs("api-a") // by its keeper
				if i%2 == 0 {
					a.home.env = nil
					a.run()
					a.runs("api-a")
					if r := a.must("list"); strings.Contains(r.stdout, "api-a") {
						t.Errorf("the fault stands:\n%s", r.stdout)
					}
					a.must("process", what, "api-a", "--down", "10ms") // it takes orders again
					return
				}
				if r := run(t, h.command("cleanup", "--state-dir", a.stateDir)); r.code != 0 {
					t.Errorf("cleanup: %d\n%s%s", r.code, r.stdout, r.stderr)
				}
				if _, err := os.Stat(a.stateDir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("the state folder: %v", err)
				}
			})
		}
	}
}

// TestOutageExplainsSlowCalls: calls that waited for a stopped server have that as their
// cause, and the agent knows it from its own record, on the clock of the calls.
func TestOutageExplainsSlowCalls(t *testing.T) {
	t.Parallel()
	testenv.Root(t)
	a := start(t)
	a.must("lab", "up", "echo", "--as", "halt")
	dir := t.TempDir()
	a.must("process", "stop", "halt/web", "--down", "400ms", "--every", "900ms", "--", filepath.Join(bin, "netemctl"), "--socket", a.socket,
		"probe", "http", "--target", "halt/http", "--pace", "20ms", "-n", "150", "--timeout", "5s", "--out", dir)
	var result struct {
		Data struct{ Causes map[string]int }
	}
	text, err := os.ReadFile(filepath.Join(dir, "result.json"))
	if err == nil {
		err = json.Unmarshal(text, &result)
	}
	if err != nil {
		t.Fatal(err)
	}
	all := 0
	for _, n := range result.Data.Causes {
		all += n
	}
	// About one call in each of four stops or more; what is slow for another reason is rare.
	if down := result.Data.Causes["server_down"]; down < 2 || down < all-1 {
		t.Errorf("causes of slow calls %v, want server_down", result.Data.Causes)
	}
}
