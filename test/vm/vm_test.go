//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// vmsEnv asks for the guests: make test sets it, and then nothing is skipped.
const vmsEnv = "NETEMD_TEST_VMS"

// longEnv asks for the full matrix: make test-long.
const longEnv = "NETEMD_TEST_LONG"

// onlyEnv limits the packages, by commas, while working on one of them: it runs whole.
const onlyEnv = "NETEMD_TEST_VM_PACKAGES"

// signalled ends with the first signal, so that a guest does not outlive ctrl-C.
var signalled context.Context

func TestMain(m *testing.M) {
	var stop context.CancelFunc
	signalled, stop = signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code := m.Run()
	stop()
	os.Exit(code)
}

// keepKeys holds a clsact in a namespace of no name, so that the kernel's code for ingress
// and egress is patched in once, and not at each first clsact and after each last one:
// see DiedError.
const keepKeys = "unshare -n sh -c 'tc qdisc add dev lo clsact && exec sleep 86400' &\n"

func TestKernel61(t *testing.T)  { testKernel(t, Kernel61) }
func TestKernel612(t *testing.T) { testKernel(t, Kernel612) }

func testKernel(t *testing.T, k Kernel) {
	if os.Getenv(vmsEnv) == "" {
		t.Skipf("%s is not set: make test, or scripts/install.sh test and %s=1", vmsEnv, vmsEnv)
	}
	if err := Check(); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := k.Fetch(ctx, filepath.Join(root, ".cache"))
	if err != nil {
		t.Fatalf("no kernel to boot: %v", err)
	}
	only := os.Getenv(onlyEnv)
	whole := os.Getenv(longEnv) != "" || only != ""
	suites := chosen(t, k, only, whole)
	dir := compiled(ctx, t, root, suites)
	machine := Machine{Tree: tree, Dir: root, Env: []string{
		"NETEMD_TEST_ROOT=1", "NETEMD_TEST_NETEM=1", "NETEMD_TEST_VM=1", "NETEMD_TEST_KERNEL=" + k.Series,
	}}
	long := os.Getenv(longEnv) != ""
	if long {
		machine.Env = append(machine.Env, longEnv+"="+os.Getenv(longEnv))
	}

	log, err := os.Create(filepath.Join(root, ".cache", "vm-"+k.Series+".log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	t.Logf("everything it says: %s", log.Name())
	start := time.Now()
	said, err := runSuites(suites, func(left []Suite) (string, error) {
		var out bytes.Buffer
		command := "modprobe tun; modprobe sch_netem || { echo 'sch_netem is missing'; exit 9; }\n" + keepKeys + Command(left, k, root, dir, long, whole)
		code, err := machine.Run(ctx, command, io.MultiWriter(&out, log))
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d", code)
		}
		if _, ok := errors.AsType[*DiedError](err); ok {
			t.Logf("THE GUEST DIED, %d suites still to be run: %v", len(unfinished(left, Outcomes(out.String()))), err)
		}
		return out.String(), err
	})
	t.Logf("kernel %s: %.0f s", k.Series, time.Since(start).Seconds())
	if err != nil {
		t.Fatalf("%v\noutput:\n%s", err, said)
	}
	outcomes := Outcomes(said)
	for _, s := range suites {
		t.Run(s.Package, func(t *testing.T) {
			o, err := s.judge(outcomes)
			tries := s.tries(outcomes)
			if err != nil {
				t.Fatalf("%v, %d tries; what it said:\n%s", err, len(tries), o.Output)
			}
			if len(tries) > 1 {
				t.Logf("FAILED AT FIRST, passed when it was run again: exit code %d, %s", tries[0].Exit, tries[0].failures())
			}
			t.Logf("%d passed, %d skipped", o.Passed, o.Skips)
		})
	}
}

// testContext ends in time for the guest to be stopped before the test program
// itself times out.
func testContext(t *testing.T) context.Context {
	ctx := signalled
	if end, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, end.Add(-20*time.Second), errors.New("the time of go test -timeout is over"))
		t.Cleanup(cancel)
	}
	return ctx
}

func chosen(t *testing.T, k Kernel, only string, whole bool) []Suite {
	suites := slices.DeleteFunc(slices.Clone(Suites), func(s Suite) bool {
		return only == "" && !s.on(k, whole) || only != "" && !slices.Contains(strings.Split(only, ","), s.Package)
	})
	if len(suites) == 0 {
		t.Fatalf("%s=%s names no package of the VM's list", onlyEnv, only)
	}
	return suites
}

// compiled builds the test programs into a folder that the guest sees too. The
// second kernel finds them in Go's build cache.
func compiled(ctx context.Context, t *testing.T, root string, suites []Suite) string {
	dir := t.TempDir()
	if cred, ok := invoker(); ok {
		for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
			if err := os.Chown(d, int(cred.Uid), int(cred.Gid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range suites {
		if err := s.Compile(ctx, root, dir); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestExitCode boots a guest for what the other tests take for granted: its output
// comes in full, its exit code arrives, and the machine's files stay untouched.
func TestExitCode(t *testing.T) {
	if os.Getenv(vmsEnv) == "" {
		t.Skipf("%s is not set", vmsEnv)
	}
	ctx := testContext(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	tree, err := Kernel612.Fetch(ctx, filepath.Join(root, ".cache"))
	if err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(t.TempDir(), "written-inside")
	var out bytes.Buffer
	code, err := Machine{Tree: tree, Dir: root, Env: []string{"WORD=it's here"}}.Run(ctx,
		"echo $WORD; pwd; seq 20000; echo x >"+host+"; test -s "+host+" && exit 42", io.Writer(&out))
	if err != nil || code != 42 {
		t.Fatalf("exit code %d, error %v, want 42; output:\n%.200s", code, err, out.String())
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 20002 || lines[0] != "it's here" || lines[1] != root || lines[20001] != "20000" {
		t.Errorf("%d lines, want 20002; the first: %q", len(lines), lines[:min(3, len(lines))])
	}
	if _, err := os.Stat(host); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is on the host: %v", host, err)
	}
}
