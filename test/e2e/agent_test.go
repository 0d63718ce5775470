package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

// agent is a running netemd with a state folder of its own.
type agent struct {
	t        *testing.T
	home     home
	stateDir string
	socket   string
	cmd      *exec.Cmd
	log      *bytes.Buffer
}

// home is where an agent runs. The zero value is where the tests do.
type home struct {
	// namespace is a named network namespace.
	namespace string
	// hosts is a file to be /etc/hosts to the agent.
	hosts string
	// env is added to the environment.
	env []string
	// config is the text of a configuration.
	config string
	// program is the netemd to run, if not the one beside netemctl.
	program string
}

// command is netemd's command line there.
func (h home) command(args ...string) *exec.Cmd {
	program := h.program
	if program == "" {
		program = filepath.Join(bin, "netemd")
	}
	cmd := exec.Command(program, args...)
	if h.hosts != "" {
		// What others mount, such as namespaces, still arrives in this mount namespace.
		cmd = exec.Command("unshare", append([]string{"--mount", "--propagation", "slave", "sh", "-c",
			`mount --bind "$0" /etc/hosts && exec "$@"`, h.hosts, cmd.Path}, args...)...)
	}
	cmd.Env = append(cmd.Environ(), h.env...)
	return cmd
}

// start runs netemd until the test ends, and then checks that it leaves nothing.
func start(t *testing.T) *agent {
	t.Helper()
	return startAt(t, home{})
}

// startAt is start with a home.
func startAt(t *testing.T, h home) *agent {
	t.Helper()
	testenv.Root(t)
	dir, err := os.MkdirTemp("", "netemd-e2e-state-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL, which is not root, has to get through
		t.Fatal(err)
	}
	if h.config != "" {
		if err := os.WriteFile(filepath.Join(dir, "netemd.yaml"), []byte(h.config), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	before := hostState(t)
	a := &agent{t: t, home: h, stateDir: filepath.Join(dir, "s")}
	a.socket = filepath.Join(a.stateDir, "netemd.sock")
	t.Cleanup(func() {
		a.stop()
		if _, err := os.Stat(a.stateDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the state folder is still there: %v", err)
		}
		_ = os.RemoveAll(dir)
		if diff := cmp.Diff(before, hostState(t)); diff != "" {
			t.Errorf("the host is not as it was (-before +after):\n%s", diff)
		}
	})
	a.run()
	return a
}

// run starts the program and waits until it answers.
func (a *agent) run() {
	a.t.Helper()
	a.log = &bytes.Buffer{}
	flags := []string{"--state-dir", a.stateDir, "--log-level", "debug"}
	if a.home.config != "" {
		flags = append(flags, "--config", filepath.Join(filepath.Dir(a.stateDir), "netemd.yaml"))
	}
	a.cmd = a.home.command(flags...)
	a.cmd.Stderr = a.log
	if err := namespaces.Start(a.home.namespace, a.cmd); err != nil {
		a.t.Fatal(err)
	}
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if a.ctl("list").code == 0 {
			return
		}
	}
	a.stop()
	a.t.Fatalf("netemd did not answer within a minute; it said:\n%s", a.log)
}

// stop ends the agent in order, and checks that it ends well.
func (a *agent) stop() {
	if a.cmd == nil || a.cmd.ProcessState != nil {
		return
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	done := time.AfterFunc(60*time.Second, func() { _ = a.cmd.Process.Kill() })
	err := a.cmd.Wait()
	if !done.Stop() || err != nil {
		a.t.Errorf("netemd did not end well: %v; it said:\n%s", err, a.log)
	}
}

// kill ends the agent at once.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// result is what a run of netemctl gave.
type result struct {
	stdout, stderr string
	code           int
}

// ctl runs netemctl with the agent's socket.
func (a *agent) ctl(args ...string) result {
	a.t.Helper()
	return ctl(a.t, append(args, "--socket", a.socket)...)
}

// must is ctl that has to succeed.
func (a *agent) must(args ...string) result {
	a.t.Helper()
	r := a.ctl(args...)
	if r.code != 0 {
		a.t.Fatalf("netemctl %s: exit code %d\n%s%s\nthe agent said:\n%s", strings.Join(args, " "), r.code, r.stdout, r.stderr, a.log)
	}
	return r
}

func ctl(t *testing.T, args ...string) result {
	t.Helper()
	return run(t, exec.Command(filepath.Join(bin, "netemctl"), beforeDashes(args)...))
}

// beforeDashes moves what was appended after "--" before it.
func beforeDashes(args []string) []string {
	i := slices.Index(args, "--")
	if i < 0 || len(args) < i+3 {
		return args
	}
	flags := args[len(args)-2:]
	return slices.Concat(args[:i], flags, args[i:len(args)-2])
}

func run(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", cmd, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// data decodes the data of a JSON document of netemctl's.
func data[T any](t *testing.T, r result, kind string) T {
	t.Helper()
	var doc struct {
		SchemaVersion int             `json:"schemaVersion"`
		Kind          string          `json:"kind"`
		Data          json.RawMessage `json:"data"`
	}
	var d T
	if err := json.Unmarshal([]byte(r.stdout), &doc); err != nil {
		t.Fatalf("no JSON document: %v\n%s%s", err, r.stdout, r.stderr)
	}
	if doc.SchemaVersion != 1 || doc.Kind != kind {
		t.Errorf("schemaVersion %d, kind %q, want 1, %q", doc.SchemaVersion, doc.Kind, kind)
	}
	if err := json.Unmarshal(doc.Data, &d); err != nil {
		t.Fatalf("data of %s: %v\n%s", kind, err, r.stdout)
	}
	return d
}

// hostState is what netemd must not change: the host's links and qdiscs, and that
// no namespace of the lab pg is there.
func hostState(t *testing.T) []string {
	t.Helper()
	var state []string
	for _, c := range [][]string{{"ip", "netns", "list"}, {"ip", "-o", "link", "show"}, {"tc", "qdisc", "show"}} {
		out, err := exec.Command(c[0], c[1:]...).Output()
		if err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		for line := range strings.Lines(string(out)) {
			if c[1] != "netns" || strings.HasPrefix(line, "netem-pg-") {
				state = append(state, line)
			}
		}
	}
	return state
}

// in runs a command in a namespace.
func in(t *testing.T, namespace string, args ...string) result {
	t.Helper()
	return run(t, exec.Command("ip", append([]string{"netns", "exec", namespace}, args...)...))
}
