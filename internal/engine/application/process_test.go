package application

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/internal/fault"
)

// TestProcess has the real child in front of a server: what it is told, what it tells, and its
// end of a fault when its lifeline ends.
func TestProcess(t *testing.T) {
	web := startWeb(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "good") })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address, socket := l.Addr().String(), filepath.Join(t.TempDir(), "api")
	_ = l.Close()
	cmd := exec.Command("/proc/self/exe", child.Args(ChildName, "--api", socket, "--listen", address, "--upstream", web)...)
	cmd.Stderr = os.Stderr
	lifeline, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the API's socket: %v, %v", info, err)
	}
	f := fault.Fault{ID: "kqv1", Expires: time.Now().Add(time.Hour), Spec: fault.Spec{Request: &fault.Request{Error: 100, Status: 503, Seed: 1<<64 - 1}}}
	if err := Set(t.Context(), socket, []fault.Fault{f}); err != nil {
		t.Fatal(err)
	}
	c := newClient(t, false)
	if a, text := do(t, c, "GET", "http://"+address, nil); a.StatusCode != 503 || !strings.Contains(text, "kqv1") {
		t.Errorf("%s %q", a.Status, text)
	}
	got, err := Read(t.Context(), socket)
	if err != nil || len(got) != 1 || got[0].ID != "kqv1" || got[0].Spec.Request.Seed != 1<<64-1 || got[0].Counters != (fault.Counters{Seen: 1, Errors: 1}) || got[0].State != fault.Active {
		t.Errorf("%+v, %v", got, err)
	}
	late := f
	late.Expires = time.Now().Add(-time.Second)
	if err := Set(t.Context(), socket, []fault.Fault{late}); err == nil || !strings.Contains(err.Error(), "deadline is past") {
		t.Errorf("a deadline that is past: %v", err)
	}
	bad := f
	bad.Spec.Request = &fault.Request{Error: 101}
	if err := Set(t.Context(), socket, []fault.Fault{bad}); err == nil {
		t.Error("what is not valid was taken")
	}
	if got, _ := Read(t.Context(), socket); len(got) != 1 || got[0].Counters.Seen != 1 {
		t.Errorf("after a refusal: %+v", got)
	}
	soon := f
	soon.Expires = time.Now().Add(100 * time.Millisecond)
	if err := Set(t.Context(), socket, []fault.Fault{soon}); err != nil {
		t.Fatal(err)
	}
	passes(t, c, address, "its time")
	if got, err := Read(t.Context(), socket); err != nil || len(got) != 1 || got[0].State != fault.Expired {
		t.Errorf("after its time: %+v, %v", got, err)
	}
	f.ID = "kqv2"
	if err := Set(t.Context(), socket, []fault.Fault{f}); err != nil {
		t.Fatal(err)
	}
	_ = lifeline.Close()
	passes(t, c, address, "the agent's end")
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if _, err := Read(t.Context(), socket); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of one that is gone: %v", err)
	}
}

// passes waits until a request passes.
func passes(t *testing.T, c *http.Client, address, after string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if a, _ := do(t, c, "GET", "http://"+address, nil); a.StatusCode == http.StatusOK {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("still in force after %s", after)
		}
	}
}
