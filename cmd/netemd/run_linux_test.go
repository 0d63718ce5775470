package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"netemd/internal/config"
)

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "netemd.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun(t *testing.T) {
	good := write(t, "ttl: {default: 5m}\nstate_dir: /run/other\n")
	bad := write(t, "ttl:\n  deflt: 5m\nlimits: {faults: 1.5}\n")
	stranger := write(t, "allow:\n  - {users: [nobody-of-that-name], verbs: [list]}\n  - {groups: [no-such-group], verbs: [list]}\n")
	nowhere := write(t, "# the log\naudit: {path: /nonexistent/dir/a}\n")
	folder := write(t, "audit: {path: /proc}\n")
	long := strings.Repeat("/s", 60)
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string
	}{
		{"version", 0, "netemd ", ""},
		{"version x", 2, "", `unknown argument "x"; version has none`},
		{"config check " + good, 0, good + " is sound", ""},
		{"config check --config " + good, 0, good + " is sound", ""},
		{"config check " + bad, 2, "", "netemd: configuration " + bad + `:2:3: ttl.deflt: is an unknown key, want one of default, max` + "\n" +
			"netemd: configuration " + bad + `:3:10: limits.faults: "1.5" is not valid, want a number from 1 to 4096` + "\n"},
		{"config check " + stranger, 2, "", "netemd: configuration " + stranger + `:2:6: allow[0].users: "nobody-of-that-name" is not valid, want a user of this host, or its number` + "\n" +
			"netemd: configuration " + stranger + `:3:6: allow[1].groups: "no-such-group" is not valid, want a group of this host, or its number` + "\n"},
		{"config check " + nowhere, 2, "", "netemd: configuration " + nowhere + `:2:9: audit.path: "/nonexistent/dir/a" is of no use (/nonexistent/dir: no such file or directory), want a file in a folder that exists: mkdir -p -m 750 /nonexistent/dir` + "\n"},
		{"config check " + folder, 2, "", "netemd: configuration " + folder + `:1:9: audit.path: "/proc" is of no use (/proc: is no regular file), want a file in a folder of root's`},
		{"config check /no/such/file", 2, "", "netemd: configuration: open /no/such/file: no such file"},
		{"config check /", 2, "", "netemd: configuration: read /: is a directory"},
		{"config show --config " + good, 0, "default: 5m", ""},
		{"config show --config " + good + " --state-dir /run/flag --keep", 0, "state_dir: /run/flag", ""},
		{"config show --config " + good + " --keep", 0, "keep: true", ""},
		{"config", 2, "", "config what? check [FILE] or show"},
		{"config edit", 2, "", "config what?"},
		{"config show " + good, 2, "", "config what?"},
		{"--config /no/such/file", 2, "", "no such file"},
		{"--config " + bad, 2, "", bad + ":2:3: "},
		{"cleanup --config " + bad + " --socket " + long, 2, "", bad + ":2:3: "},
		{"cleanup --socket " + long, 2, "", `netemd: --socket "` + long + `": want an absolute path of at most 107 bytes`},
		{"--socket " + long, 2, "", `netemd: --socket "` + long + `": want an absolute path of at most 107 bytes`},
		{"--state-dir " + long, 2, "", `netemd: --state-dir "` + long + `": want at most 95 bytes, or socket.path`},
		{"--state-dir=", 2, "", "netemd: --state-dir: want a path, not an empty text"},
		{"--socket=", 2, "", "netemd: --socket: want a path, not an empty text"},
		{"--config=", 2, "", "netemd: --config: want a path, not an empty text"},
		{"cleanup --state-dir=", 2, "", "netemd: --state-dir: want a path, not an empty text"},
		{"cleanup --socket=", 2, "", "netemd: --socket: want a path, not an empty text"},
		{"cleanup --config=", 2, "", "netemd: --config: want a path, not an empty text"},
		{"config show --state-dir=", 2, "", "netemd: --state-dir: want a path, not an empty text"},
		{"nonsense", 2, "", `unknown argument "nonsense"; known: cleanup, config, version`},
		{"--help", 0, "", "Flags win over the configuration."},
		{"--no-such-flag", 2, "", "not defined"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(tt.args), &stdout, &stderr)
		if code != tt.code || !strings.Contains(stdout.String(), tt.stdout) || !strings.Contains(stderr.String(), tt.stderr) {
			t.Errorf("netemd %s: %d, %q, %q, want %d, %q, %q", tt.args, code, &stdout, &stderr, tt.code, tt.stdout, tt.stderr)
		}
	}
}

// A configuration that is of no use keeps nothing in the kernel.
func TestCleanupWithoutConfiguration(t *testing.T) {
	good := write(t, "state_dir: /run/other\n")
	bad := write(t, "state_dir: /run/other\nttl:\n  deflt: 5m\n")
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		flags         flags
		unsound, dir  string
		refused, keep bool
	}{
		"sound":            {flags{config: good}, "", "/run/other", false, false},
		"sound, and flags": {flags{config: good, stateDir: "/run/flag"}, "", "/run/flag", false, false},
		"unsound":          {flags{config: bad}, ":3:3: ", config.Default().StateDir, false, false},
		"unsound, flags":   {flags{config: bad, stateDir: "/run/flag", keep: true}, ":3:3: ", "/run/flag", false, true},
		"missing":          {flags{config: "/no/such/file"}, "no such file", config.Default().StateDir, false, false},
		"relative":         {flags{config: good, stateDir: "flag/../there"}, "", here + "/there", false, false},
		"bad flags":        {flags{config: bad, socket: strings.Repeat("/s", 60)}, ":3:3: ", "", true, false},
	} {
		c, unsound, err := tt.flags.cleanupSettings()
		if (unsound == nil) != (tt.unsound == "") || unsound != nil && !strings.Contains(unsound.Error(), tt.unsound) {
			t.Errorf("%s: the configuration: %v, want %q", name, unsound, tt.unsound)
		}
		if (err != nil) != tt.refused || err == nil && (c.StateDir != tt.dir || c.Keep != tt.keep) {
			t.Errorf("%s: %+v, %v, want %s", name, c, err, tt.dir)
		}
	}
}

// systemd hears each state, and no beat while the agent hangs.
func TestNotify(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	t.Setenv("NOTIFY_SOCKET", path)
	log := slog.New(slog.DiscardHandler)
	heard := func() string {
		b := make([]byte, 256)
		_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := l.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	notify(daemon.SdNotifyStopping, log)
	if got := heard(); got != "STOPPING=1" {
		t.Errorf("heard %q", got)
	}
	ready(t.Context(), nil, log) // without a watchdog the agent is not asked
	if got := heard(); got != "READY=1" {
		t.Errorf("heard %q", got)
	}

	ctx, stop := context.WithCancel(t.Context())
	asked, ended := 0, make(chan bool)
	go func() {
		beat(ctx, time.Millisecond, func(context.Context) error {
			if asked++; asked > 3 {
				stop()
			}
			if asked == 2 {
				return errors.New("it hangs")
			}
			return nil
		}, func() { notify(daemon.SdNotifyWatchdog, log) }, log)
		close(ended)
	}()
	<-ended
	for range 2 {
		if got := heard(); got != "WATCHDOG=1" {
			t.Errorf("heard %q", got)
		}
	}
	_ = l.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	if n, err := l.Read(make([]byte, 1)); err == nil {
		t.Errorf("heard %d bytes more than two beats of four looks, one that failed and one at the end", n)
	}
}
