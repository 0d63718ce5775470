package service

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/namespaces"
)

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
}

// TestConfined looks at what a command is given.
func TestConfined(t *testing.T) {
	p := newPlace(t)
	o := p.shell(`id -u; id -g; id -G; pwd; echo "$A|$HOME|"; env | wc -l; read x || echo no input
		grep -E 'NoNewPrivs|CapEff|SigIgn' /proc/self/status; cat /proc/self/oom_score_adj; umask; ulimit -l; ls -l /proc/self/fd | wc -l
		[ "$(cut -d' ' -f6 /proc/$$/stat)" = $$ ] && echo own session; echo done >/dev/stderr; exec sleep 1000`)
	o.Identity.Groups = []uint32{4, 24}
	o.Environment = append(o.Environment, "A=b", "HOME=/h")
	o.Directory = "/usr"
	r, err := p.start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its output", func() bool { return strings.Contains(p.log(t), "done\n") })
	text := p.log(t)
	contains(t, text, "65534\n65534\n65534 4 24\n/usr\nb|/h|\n", "no input\n", "NoNewPrivs:\t1\n", "CapEff:\t0000000000000000\n",
		"\n0\n0022\n", "own session\n")
	_, ignored, _ := strings.Cut(text, "SigIgn:\t")
	ignored, _, _ = strings.Cut(ignored, "\n")
	// Signal 32 belongs to the C library (SIGCANCEL), and whoever started the tests may ignore it.
	if n, err := strconv.ParseUint(ignored, 16, 64); err != nil || n&^(1<<31) != 0 {
		t.Errorf("ignored signals %q, %v", ignored, err)
	}
	state, err := ReadState(p.folder, "it")
	if err != nil || state.Main != r.State.Main || !state.Ready || state.Ended != nil {
		t.Errorf("state %+v, %v", state, err)
	}
	info, err := os.Stat(LogPath(p.folder, "it"))
	if err != nil || info.Mode().Perm() != 0o640 || info.Sys().(*unixStat).Uid != 0 || info.Sys().(*unixStat).Gid != 65534 {
		t.Errorf("log: %v %+v, %v, want it root's, and readable by the service's group", info.Mode(), info.Sys(), err)
	}
	pids, err := namespaces.PIDs(p.namespace)
	if err != nil || len(pids) != 2 {
		t.Errorf("in the namespace: %v, %v, want the service and its keeper", pids, err)
	}
}

// TestOdd starts what cannot become ready. Nothing of it is left.
func TestOdd(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(p place, o *Order)
		want   []string
	}{
		"ends at once": {func(p place, o *Order) { o.Command = p.shell("echo bad flag; exit 3").Command },
			[]string{"ended before it was ready: exit status 3; its log: bad flag"}},
		"ends at once, well": {func(p place, o *Order) { o.Command = []string{"true"} },
			[]string{"ended before it was ready: exit status 0"}},
		"killed": {func(p place, o *Order) { o.Command = p.shell("kill -SEGV $$").Command },
			[]string{"ended before it was ready: killed by SIGSEGV"}},
		"missing": {func(_ place, o *Order) { o.Command = []string{"no-such-program"} },
			[]string{"start no-such-program in PATH /usr/local/bin:/usr/bin:/bin: no such file or directory"}},
		"missing here": {func(p place, o *Order) { o.Command, o.Directory = []string{"./server"}, p.folder },
			[]string{"start ./server in /", ": no such file or directory"}},
		"not executable": {func(_ place, o *Order) { o.Command = []string{"/etc/passwd"} },
			[]string{"start /etc/passwd: permission denied (as uid 65534"}},
		"folder missing": {func(_ place, o *Order) { o.Directory = "/no/such" },
			[]string{"folder /no/such: no such file or directory"}},
		"folder of root's, which is there": {func(p place, o *Order) { o.Directory = p.secret(t, "there") },
			[]string{"folder ", "/secret/there: permission denied"}},
		"folder of root's, which is not": {func(p place, o *Order) { o.Directory = p.secret(t, "") + "gone" },
			[]string{"folder ", "/secret/gone: permission denied"}},
		"no program": {func(p place, o *Order) {
			file := filepath.Join(p.folder, "junk")
			if err := os.WriteFile(file, []byte("junk"), 0o755); err != nil {
				panic(err)
			}
			o.Command = []string{file}
		}, []string{"exec format error"}},
		"never ready": {func(_ place, o *Order) {
			o.Ready = Readiness{TCP: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7777")}, Within: 300 * time.Millisecond}
		}, []string{"not ready after 300ms (last: dial tcp 127.0.0.1:7777: ", "it was stopped: killed by SIGTERM; its log: hello"}},
		"never ready, ignores SIGTERM": {func(p place, o *Order) {
			o.Command = p.shell("trap '' TERM; echo hello; while :; do sleep 0.05; done").Command
			o.Ready = Readiness{HTTP: "http://127.0.0.1:7777/", Within: 300 * time.Millisecond}
		}, []string{"not ready after 300ms (last: ", "it was stopped: killed by SIGKILL; its log: hello"}},
		"check fails": {func(_ place, o *Order) {
			o.Ready = Readiness{Command: []string{"sh", "-c", "echo not yet; exit 7"}, Within: time.Second}
		}, []string{"not ready after 1s (last: sh: exit status 7: not yet)"}},
		"check hangs": {func(_ place, o *Order) {
			o.Ready = Readiness{Command: []string{"sleep", "1000"}, Within: 300 * time.Millisecond}
		}, []string{"not ready after 300ms"}},
		"log where it may not write": {func(_ place, o *Order) { o.Log = "/etc/nt-service.log" },
			[]string{"log: open /etc/nt-service.log: permission denied"}},
		"log is a device": {func(_ place, o *Order) { o.Log = "/dev/null" },
			[]string{"log /dev/null: is no regular file"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			o := p.shell("echo hello; exec sleep 1000")
			tt.change(p, &o)
			_, err := p.start(t, o)
			if err == nil {
				t.Fatal("it is ready")
			}
			contains(t, err.Error(), tt.want...)
			state, err := ReadState(p.folder, "it")
			if err != nil || state.Ready || state.Ended == nil {
				t.Errorf("state %+v, %v", state, err)
			}
		})
	}
}

// secret makes a folder in one that only root may enter.
func (p place) secret(t *testing.T, name string) string {
	t.Helper()
	outer := filepath.Join(p.folder, "secret")
	if err := errors.Join(os.MkdirAll(filepath.Join(outer, name), 0o755), os.Chmod(outer, 0o700)); err != nil {
		t.Fatal(err)
	}
	return outer + "/" + name
}

// TestReady has each of the checks succeed.
func TestReady(t *testing.T) {
	serve := `exec python3 -m http.server -b 127.0.0.1 7070`
	at := netip.MustParseAddrPort("127.0.0.1:7070")
	for name, ready := range map[string]Readiness{
		"tcp":     {TCP: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7071"), at}},
		"http":    {HTTP: "http://127.0.0.1:7070/"},
		"command": {Command: []string{"sh", "-c", `[ "$(id -u)" = 65534 ] && [ -e up ]`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			if err := loopback(p.namespace); err != nil {
				t.Fatal(err)
			}
			o := p.shell(serve)
			if name == "command" {
				if err := os.Chmod(p.folder, 0o777); err != nil {
					t.Fatal(err)
				}
				o = p.shell("sleep 0.3; touch up; exec sleep 1000")
			}
			o.Ready, o.Directory = ready, p.folder
			if _, err := p.start(t, o); err != nil {
				t.Fatal(err)
			}
			if name == "tcp" {
				again := p.shell(serve)
				again.Name, again.Ready = "again", ready
				_, err := p.start(t, again)
				if err == nil {
					t.Fatal("a port serves two")
				}
				contains(t, err.Error(), "port 7070 is taken: something listens on 127.0.0.1:7070 already")
			}
		})
	}
}

// TestForks has the first process end and others go on: in the session, in one of their
// own, and in another namespace, where nobody would look.
func TestForks(t *testing.T) {
	for name, script := range map[string]string{
		"daemon":          `sleep 1000 & echo $! `,
		"own session":     `setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' & sleep 0.2`,
		"other namespace": `unshare -Urn sh -c 'echo $$; exec sleep 1000' & sleep 0.2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPlace(t)
			o := p.shell(script)
			r, err := p.start(t, o)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "the end of its first process", func() bool { return !r.State.Main.Alive() })
			first, _, _ := strings.Cut(p.log(t), "\n")
			pid, err := strconv.Atoi(first)
			if err != nil {
				t.Fatal(err, p.log(t))
			}
			other, err := Identify(pid)
			if err != nil {
				t.Fatal(err)
			}
			eventually(t, "its status", func() bool { s, _ := ReadState(p.folder, "it"); return s.Ended == nil && r.Keeper.Alive() })
			if !other.Alive() {
				t.Fatal("the daemon has ended with the first process")
			}
			r.stop(t, o)
			if other.Alive() {
				t.Errorf("process %d lives on", pid)
			}
		})
	}
}

// TestFailsLater has a service end badly after it was ready, with others left behind.
func TestFailsLater(t *testing.T) {
	p := newPlace(t)
	o := p.shell(`sleep 1000 & sleep 0.4; echo last words; exit 9`)
	r, err := p.start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Keeper.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	state, err := ReadState(p.folder, "it")
	if err != nil || state.Status != "exit status 9" || state.Ended == nil || !state.Ready {
		t.Errorf("state %+v, %v", state, err)
	}
	contains(t, p.log(t), "last words\n[netemd: it: exit status 9]\n")
}

// TestLog has a service write without end.
func TestLog(t *testing.T) {
	p := newPlace(t)
	o := p.shell(`head -c 100000000 /dev/zero | tr '\0' x; echo; echo the last words; exit 5`)
	o.LogLimit = 100_000
	r, err := p.start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Keeper.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	text := p.log(t)
	if len(text) > 110_000 {
		t.Errorf("%d bytes were recorded, want 100 kB and a little", len(text))
	}
	const want = "\n[netemd: stopped recording here, at 100000 bytes; the service goes on]\n" +
		"[netemd: 99900016 bytes were not recorded; these are the last:]\n\nthe last words\n[netemd: it: exit status 5]\n"
	if got := strings.ReplaceAll(text, "x", ""); got != strings.ReplaceAll(want, "x", "") {
		t.Errorf("beside the x:\n%s\nwant:\n%s", got, want)
	}
}

// TestOwnLog has the log in a file of the user's.
func TestOwnLog(t *testing.T) {
	p := newPlace(t)
	dir := filepath.Join(p.folder, "user")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	o := p.shell("echo hello; exec sleep 1000")
	o.Log = filepath.Join(dir, "own.log")
	if _, err := p.start(t, o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its output", func() bool { text, _ := os.ReadFile(o.Log); return len(text) > 0 })
	text, err := os.ReadFile(o.Log)
	info, err2 := os.Stat(o.Log)
	if err != nil || err2 != nil || string(text) != "hello\n" || info.Sys().(*unixStat).Uid != 65534 {
		t.Errorf("%q, %v, %v", text, err, err2)
	}
	// A link at its place is not followed.
	again := p.shell("exec sleep 1000")
	again.Name, again.Log = "again", filepath.Join(dir, "link")
	if err := os.Symlink(o.Log, again.Log); err != nil {
		t.Fatal(err)
	}
	if _, err := p.start(t, again); err == nil || !strings.Contains(err.Error(), unix.ELOOP.Error()) {
		t.Errorf("a link: %v", err)
	}
}

// TestLogOfSomebodyElse has a log that was a file of another use before: what the service says
// comes to its end, and nothing else.
func TestLogOfSomebodyElse(t *testing.T) {
	p := newPlace(t)
	path := filepath.Join(p.folder, "passwd")
	if err := errors.Join(os.WriteFile(path, []byte("root:x:0:0\n"), 0o600), os.Chown(path, 65534, 65534), os.Chmod(p.folder, 0o755)); err != nil {
		t.Fatal(err)
	}
	o := p.shell("exit 3")
	o.Log = path
	if _, err := p.start(t, o); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("its end: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "root:x:0:0\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestChild runs a part of this program as a user, with a lifeline.
func TestChild(t *testing.T) {
	p := newPlace(t)
	o := Order{Name: "it", Folder: p.folder, Child: "whoami", Identity: Identity{UID: 65534, GID: 65534}, Lifeline: true}
	r, err := p.start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "its output", func() bool { return strings.Contains(p.log(t), "groups") })
	contains(t, p.log(t), "uid 65534 gid 65534\ngroups [] <nil>\n")
	if err := r.Lifeline.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Keeper.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	contains(t, p.log(t), "lifeline 0 EOF\n")
}

// TestKeeperKilled kills the keeper: the service does not outlive it.
func TestKeeperKilled(t *testing.T) {
	p := newPlace(t)
	o := p.shell("exec sleep 1000")
	r, err := p.start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(r.Keeper.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the service's end", func() bool { return !r.State.Main.Alive() })
}

// TestKeeperHangs stops a keeper that does not answer: what its service has started goes with
// it, also what is started meanwhile and is in a session and a namespace of its own.
func TestKeeperHangs(t *testing.T) {
	p := newPlace(t)
	o := p.shell(`unshare -Urn setsid sh -c 'trap "" TERM; echo $$; while :; do sleep 0.01; done' & while :; do setsid sleep 0.3 & sleep 0.01; done`)
	r, err := p.start(t, o)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other's number", func() bool { return strings.Contains(p.log(t), "\n") })
	first, _, _ := strings.Cut(p.log(t), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err, p.log(t))
	}
	other, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Kill(r.Keeper.PID, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := r.Keeper.StopKeeper(-keeperMargin); err != nil {
		t.Error(err)
	}
	for what, left := range map[string]Process{"the keeper": r.Keeper, "the service": r.State.Main, "what it started": other} {
		if left.Alive() {
			t.Errorf("%s, process %d, lives on", what, left.PID)
		}
	}
}

// TestStopInside ends a service without its keeper's help, as after a crash.
func TestStopInside(t *testing.T) {
	p := newPlace(t)
	o := p.shell(`unshare -Urn sh -c 'trap "" TERM; echo $$; while :; do sleep 0.05; done' & trap '' TERM; while :; do sleep 0.05; done`)
	if _, err := p.start(t, o); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its output", func() bool { return strings.Contains(p.log(t), "\n") })
	first, _, _ := strings.Cut(p.log(t), "\n")
	pid, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	far, err := Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := StopInside(t.Context(), []string{p.namespace}); err != nil {
		t.Error(err)
	}
	if far.Alive() {
		t.Errorf("process %d in another namespace lives on", pid)
	}
}

// TestStopInsideLate has a process that starts another one, elsewhere, when it is asked to end,
// as one does that is just beginning.
func TestStopInsideLate(t *testing.T) {
	for range 20 { // a slow machine may be at the end before it has begun
		if stopLate(t) {
			return
		}
	}
	t.Error("what was started late never began")
}

// stopLate reports whether the late process had begun.
func stopLate(t *testing.T) bool {
	t.Helper()
	p := newPlace(t)
	o := p.shell(`trap 'unshare -Urn sh -c "trap : TERM; echo late \$\$ .; while :; do sleep 0.05; done" & trap "" TERM' TERM; while :; do sleep 0.05; done`)
	if _, err := p.start(t, o); err != nil {
		t.Fatal(err)
	}
	if _, err := StopInside(t.Context(), []string{p.namespace}); err != nil {
		t.Error(err)
	}
	_, after, _ := strings.Cut(p.log(t), "late ")
	text, _, ok := strings.Cut(after, " .")
	if !ok {
		return false
	}
	pid, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	if far, err := Identify(pid); err == nil && far.Alive() {
		_ = unix.Kill(pid, unix.SIGKILL)
		t.Errorf("process %d in another namespace lives on", pid)
	}
	return true
}

func TestLookUp(t *testing.T) {
	for _, name := range []string{"nobody", "65534"} {
		if id, err := LookUp(name); err != nil || id.UID != 65534 {
			t.Errorf("%s: %+v, %v", name, id, err)
		}
	}
	if id, err := LookUp("no-such-user"); err == nil {
		t.Errorf("no-such-user: %+v", id)
	}
	if name, home := (Identity{UID: 4242424}).Home(); name != "4242424" || home != "/" {
		t.Error(name, home)
	}
	if name, home := (Identity{}).Home(); name != "root" || home != "/root" {
		t.Error(name, home)
	}
}
