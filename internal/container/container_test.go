package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	id1 = "4bf1a0d3c2e5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d2e3f4a5b6c7d8e9f0a1"
	id2 = "4bf2a0d3c2e5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d2e3f4a5b6c7d8e9f0a2"
	id3 = "9c03a0d3c2e5f6a7b8c9d0e1f2a3b4c5d6e7f8a9b0c1d2e3f4a5b6c7d8e9f0a3"
)

// The paths are those that the runtimes make, with each driver of control groups.
func TestParseCgroups(t *testing.T) {
	for name, tt := range map[string]struct{ text, id, runtime, unified string }{
		"docker, v1":             {"12:pids:/docker/" + id1 + "\n0::/\n", id1, "docker", "/"},
		"docker, v2":             {"0::/system.slice/docker-" + id1 + ".scope\n", id1, "docker", "/system.slice/docker-" + id1 + ".scope"},
		"docker, cgroupfs v2":    {"0::/docker/" + id1 + "\n", id1, "docker", "/docker/" + id1},
		"docker in docker":       {"0::/docker/" + id2 + "/docker/" + id1 + "\n", id1, "docker", "/docker/" + id2 + "/docker/" + id1},
		"docker in docker, init": {"0::/docker/" + id2 + "/init\n", id2, "docker", "/docker/" + id2 + "/init"},
		"podman":                 {"0::/machine.slice/libpod-" + id1 + ".scope/container\n", id1, "podman", "/machine.slice/libpod-" + id1 + ".scope/container"},
		"podman, rootless":       {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id1 + ".scope\n", id1, "podman", "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + id1 + ".scope"},
		"podman, v1":             {"3:cpu:/libpod_parent/libpod-" + id1 + "\n", id1, "podman", ""},
		"podman's monitor":       {"0::/machine.slice/libpod-conmon-" + id1 + ".scope\n", "", "", "/machine.slice/libpod-conmon-" + id1 + ".scope"},
		"containerd's CRI":       {"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id1 + ".scope\n", id1, "kubernetes", "/kubepods.slice/kubepods-pod1.slice/cri-containerd-" + id1 + ".scope"},
		"containerd's CRI, v1":   {"4:cpu:/kubepods/burstable/pod12/" + id1 + "\n", id1, "kubernetes", ""},
		"containerd in one part": {"4:cpu:/system.slice/containerd.service/kubepods-burstable-pod12.slice:cri-containerd:" + id1 + "\n", id1, "kubernetes", ""},
		"cri-o":                  {"0::/kubepods.slice/kubepods-pod1.slice/crio-" + id1 + ".scope\n", id1, "cri-o", "/kubepods.slice/kubepods-pod1.slice/crio-" + id1 + ".scope"},
		"nerdctl":                {"0::/system.slice/nerdctl-" + id1 + ".scope\n", id1, "containerd", "/system.slice/nerdctl-" + id1 + ".scope"},
		"a cgroup namespace":     {"0::/../" + id1 + "\n", id1, "", "/../" + id1},
		"a parent of one's own":  {"4:cpu:/ci/jobs/" + id1 + "\n", id1, "", ""},
		"no container":           {"12:pids:/user.slice\n0::/init.scope\n", "", "", "/init.scope"},
		"nothing":                {"x\n\n:\n", "", "", ""},
	} {
		id, runtime, unified := parseCgroups(tt.text)
		if id != tt.id || runtime != tt.runtime || unified != tt.unified {
			t.Errorf("%s: %q %q %q, want %q %q %q", name, id, runtime, unified, tt.id, tt.runtime, tt.unified)
		}
	}
}

// fakeProcess is one in a folder like /proc.
type fakeProcess struct {
	pid, parent    int
	command, state string
	started        int
	cgroup         string
	cmdline        []string
}

func fakeProc(t *testing.T, all ...fakeProcess) string {
	t.Helper()
	dir := t.TempDir()
	for _, p := range all {
		in := filepath.Join(dir, strconv.Itoa(p.pid))
		if err := os.MkdirAll(in, 0o755); err != nil {
			t.Fatal(err)
		}
		if p.state == "" {
			p.state = "S"
		}
		stat := fmt.Sprintf("%d (%s) %s %d %s%d 0 0\n", p.pid, p.command, p.state, p.parent, strings.Repeat("0 ", 17), p.started)
		for name, text := range map[string]string{"cgroup": p.cgroup, "stat": stat, "cmdline": strings.Join(p.cmdline, "\x00") + "\x00"} {
			if err := os.WriteFile(filepath.Join(in, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// serveNames answers as Docker does, after a while.
func serveNames(t *testing.T, wait time.Duration, all []known) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-time.After(wait):
		case <-done:
		}
		_ = json.NewEncoder(w).Encode(all)
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() {
		close(done)
		_ = s.Close()
	})
	return path
}

func TestFind(t *testing.T) {
	proc := fakeProc(t,
		fakeProcess{pid: 1, command: "init", cgroup: "0::/init.scope\n"},
		fakeProcess{pid: 10, command: "a (b) c", started: 500, cgroup: "0::/docker/" + id1 + "\n"},
		fakeProcess{pid: 9, command: "exec", started: 700, cgroup: "0::/docker/" + id1 + "\n"},
		fakeProcess{pid: 20, command: "x", started: 5, cgroup: "0::/docker/" + id2 + "\n"},
		fakeProcess{pid: 21, command: "dead", state: "Z", started: 1, cgroup: "0::/docker/" + id2 + "\n"},
		fakeProcess{pid: 30, command: "containerd-shim", cgroup: "0::/\n", cmdline: []string{"/usr/bin/containerd-shim-runc-v2", "-namespace", "default", "-id", "mine", "-address", "x"}},
		fakeProcess{pid: 31, parent: 30, command: "app", started: 9, cgroup: "0::/default/mine\n"},
	)
	socket := serveNames(t, 0, []known{
		{ID: id1, Names: []string{"/web"}, State: "running"}, {ID: id2, Names: []string{"/db"}, State: "paused"}, {ID: id3, Names: []string{"/old"}, State: "exited"},
	})
	for ref, want := range map[string]int{"web": 10, id1: 10, "4bf1": 10, "db": 20, id2: 20, "mine": 31} {
		c, err := find(t.Context(), proc, []string{socket, "/no/such/socket"}, ref)
		if err != nil || c.PID != want {
			t.Errorf("%s: %+v, %v, want pid %d", ref, c, err, want)
		}
	}
	for ref, want := range map[string]error{"4bf": ErrAmbiguous, "old": ErrStopped, "9c03": ErrStopped, "nope": ErrUnknown} {
		_, err := find(t.Context(), proc, []string{socket}, ref)
		if !errors.Is(err, want) || !strings.Contains(err.Error(), "web (4bf1a0d3c2e5)") {
			t.Errorf("%s: %v, want %v with the candidates", ref, err, want)
		}
	}
	// Two engines may have the same name.
	other := serveNames(t, 0, []known{{ID: id2, Names: []string{"web"}}})
	if _, err := find(t.Context(), proc, []string{socket, other}, "web"); !errors.Is(err, ErrAmbiguous) {
		t.Errorf("one name at two sockets: %v", err)
	}
}

// A socket that gives no answer costs a second, is told, and keeps no id from being found.
func TestHungSocket(t *testing.T) {
	proc := fakeProc(t, fakeProcess{pid: 10, command: "a", cgroup: "0::/docker/" + id1 + "\n"})
	hung := serveNames(t, time.Hour, nil)
	begin := time.Now()
	c, err := find(t.Context(), proc, []string{hung}, "4bf1")
	if err != nil || c.PID != 10 {
		t.Errorf("by its id: %+v, %v", c, err)
	}
	_, err = find(t.Context(), proc, []string{hung}, "web")
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "no answer within 1s") {
		t.Errorf("by a name: %v, want it unknown, and the socket named", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %v, want 2 s", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := find(ctx, proc, nil, "web"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func FuzzParseCgroups(f *testing.F) {
	f.Add("0::/docker/" + id1 + "\n")
	f.Fuzz(func(_ *testing.T, s string) { parseCgroups(s) })
}
