package cli

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

func TestRunCommand(t *testing.T) {
	for _, c := range []struct {
		script string
		code   int
		out    string
	}{
		{"cat; exit 3", 3, "in"},
		{"kill -KILL $$", 137, ""},
		{"exit 0", 0, ""},
		// A signal to netemctl goes on to the command.
		{`trap 'echo heard; exit 9' TERM; kill -TERM $PPID; while :; do sleep 0.02; done`, 9, "heard\n"},
	} {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // The context's end must not end the command.
		code, err := RunCommand(ctx, Command{Argv: []string{"sh", "-c", c.script}, Stdin: strings.NewReader("in"), Stdout: &out, Stderr: &errs})
		if err != nil || code != c.code || out.String() != c.out {
			t.Errorf("%s: exit code %d, error %v, output %q %q", c.script, code, err, out.String(), errs.String())
		}
	}
}

func TestRunCommandNotStarted(t *testing.T) {
	for _, c := range []struct {
		path string
		code int
	}{{"netemctl-no-such-command", exitNotFound}, {"/no/such/command", exitNotFound}, {t.TempDir(), exitNotExecutable}} {
		var errs bytes.Buffer
		code, err := RunCommand(t.Context(), Command{Argv: []string{c.path}, Stdout: &errs, Stderr: &errs})
		if err != nil || code != c.code || errs.Len() == 0 {
			t.Errorf("%s: exit code %d, want %d, error %v, %q", c.path, code, c.code, err, errs.String())
		}
	}
}

func TestFindCommand(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/data", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		code int
		text string
	}{
		"sh": {0, ""}, "/bin/sh": {0, ""}, "netemctl-no-such-command": {exitNotFound, "command not found"}, "/no/such/command": {exitNotFound, "command not found"},
		dir: {exitNotExecutable, "is a directory"}, dir + "/data": {exitNotExecutable, "permission denied"},
	} {
		code, err := FindCommand(name)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if code != want.code || text != want.text {
			t.Errorf("%s: exit code %d, %q, want %+v", name, code, text, want)
		}
	}
}

func TestRunCommandInNamespace(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("namespaces need Linux")
	}
	testenv.Root(t)
	name := "nt-cli-" + strings.ReplaceAll(time.Now().Format("150405.000000"), ".", "-")
	if err := namespaces.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := namespaces.Delete(name); err != nil {
			t.Error(err)
		}
	})
	var out bytes.Buffer
	code, err := RunCommand(t.Context(), Command{
		Namespace: name, Argv: []string{"readlink", "/proc/self/ns/net"}, Stdout: &out, Stderr: os.Stderr,
	})
	if err != nil || code != 0 {
		t.Fatalf("exit code %d, error %v", code, err)
	}
	devices, err := Devices(name)
	if err != nil || strings.Join(devices, " ") != "lo" {
		t.Errorf("devices of a new namespace: %v, error %v", devices, err)
	}
	if names, err := Namespaces(); err != nil || !slices.Contains(names, name) {
		t.Errorf("no %s among %v, error %v", name, names, err)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(out.String()); got == own || !strings.HasPrefix(got, "net:[") {
		t.Errorf("ran in %s, the test itself is in %s", got, own)
	}
	if code, err = RunCommand(t.Context(), Command{Namespace: name, Argv: []string{"netemctl-no-such-command"}, Stderr: &out}); code != exitNotFound || err != nil {
		t.Errorf("unknown command: exit code %d, error %v", code, err)
	}
	_, err = RunCommand(t.Context(), Command{Namespace: name + "-not", Argv: []string{"true"}, Stderr: &out})
	if !errors.Is(err, errNoNamespace) || errors.Is(err, fs.ErrPermission) {
		t.Errorf("unknown namespace: %v", err)
	}
}
