package agent

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"netemd/internal/engine/ebpf"
	"netemd/internal/fault"
	"netemd/internal/offload"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/qdisc"
)

// leaverEnv makes the test program a child that leaves what an agent does when it is
// killed: the state folder and the namespace.
const leaverEnv = "NETEMD_TEST_AGENT_LEAVER"

// leave sets a fault on v0 of the namespace, in the way of a kernel without tcx, and
// switches offload off there. Then it says so, and waits to be killed.
func leave(what string) {
	dir, namespace, _ := strings.Cut(what, "|")
	ctx := context.Background()
	t, err := target.Resolve(ctx, target.Selector{Namespace: namespace, Device: "v0"}, nil)
	var e *ebpf.Engine
	if err == nil {
		e, err = ebpf.New(ebpf.Config{Clsact: true})
	}
	if err == nil {
		err = e.Set(ctx, t.To, qdisc.Netem{Loss: 100}, time.Now().Add(time.Minute))
	}
	keeper := offload.New(filepath.Join(dir, "offload"))
	var found []fault.Offload
	if err == nil {
		found, err = keeper.Read(ctx, []target.Place{t.To})
	}
	if err == nil {
		_, err = keeper.Off(ctx, "bqk1", found)
	}
	fmt.Println("left", err)
	time.Sleep(time.Minute)
}

// What a cleanup undoes at devices that are not netemd's own is told.
func TestCleanupSaysWhatItRemoved(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := filepath.Join(t.TempDir(), "s")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), leaverEnv+"="+dir+"|"+a)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	n, err := io.ReadAtLeast(out, said, len("left <nil>"))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if string(said[:n]) != "left <nil>\n" {
		t.Fatalf("the child said %q, %v", said[:n], err)
	}
	removed, err := Cleanup(t.Context(), Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(removed, func(r string) bool {
		return strings.HasPrefix(r, "the filter netemd-") && strings.HasSuffix(r, fmt.Sprintf(" on egress of v0 in namespace %q", a))
	}) {
		t.Errorf("removed %q, want the filter at egress of v0 in %s", removed, a)
	}
	for _, where := range []string{"v0 in netns " + a, "v1 in netns " + b} {
		if !slices.ContainsFunc(removed, func(r string) bool {
			return strings.HasPrefix(r, "what kept offload off at "+where+": ") && strings.Contains(r, "tso")
		}) {
			t.Errorf("removed %q, want what kept offload off at %s", removed, where)
		}
	}
	if again, err := Cleanup(t.Context(), Config{StateDir: dir, Log: slog.New(slog.DiscardHandler)}); err != nil || len(again) > 0 {
		t.Errorf("a second cleanup removed %q, %v", again, err)
	}
}

// What an earlier agent left and cannot be undone is said, and does not keep an agent
// from starting: without one nothing else would be cleared.
func TestLeftoverThatCannotBeUndone(t *testing.T) {
	testenv.Root(t)
	dir := filepath.Join(t.TempDir(), "s")
	record := filepath.Join(dir, "offload", "bqk1.json")
	if err := os.MkdirAll(filepath.Dir(record), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(record, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a, err := New(t.Context(), Config{StateDir: dir, Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), record) {
		t.Errorf("the log does not name %s:\n%s", record, log.String())
	}
}
