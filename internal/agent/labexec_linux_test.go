package agent

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/lab/labfile"
	"netemd/internal/testenv/testca"
)

// TestLabWithCommands has a lab with a command asked for by certificates, one of which has
// every verb but exec, and over the unix socket.
func TestLabWithCommands(t *testing.T) {
	authority := testca.New(t)
	name := fmt.Sprintf("nt-exec-%d", os.Getpid())
	_, local, address := tcp(t, authority, func(c *Config) {
		c.Settings.Allow = []access.Rule{
			{Certificates: []string{"ci"}, Verbs: []access.Verb{access.All}, Targets: []string{"*"}},
			{Certificates: []string{"deploy"}, Verbs: []access.Verb{access.Lab, access.List, access.Exec}, Targets: []string{name}},
		}
	})
	text := fmt.Sprintf(`
lab: %s
nodes: {a: {services: [{name: it, command: [sleep, "1000"]}]}, b: {}}
links: [{a: a, b: b}]
`, name)
	request := labfile.Request{Name: name, Text: []byte(text)}
	ci, err := open(t, authority, address, authority.Client(t, "ci"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ci.LabUp(t.Context(), request, nil); !errors.Is(err, fault.ErrDenied) || !strings.Contains(err.Error(), "certificate CN ci may not exec on "+name) {
		t.Errorf("without exec: %v", err)
	}
	deploy, err := open(t, authority, address, authority.Client(t, "deploy"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := deploy.LabUp(t.Context(), request, nil)
	if err != nil {
		t.Fatal(err)
	}
	service := info.Nodes[0].Services[0]
	var st unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/task", service.PID), &st); err != nil || st.Uid != overflowID {
		t.Errorf("the command runs as %d, %v, want nobody", st.Uid, err)
	}
	if err := unix.Kill(service.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end is seen", func() bool {
		info, _, err := local.Lab(t.Context(), name)
		s := info.Nodes[0].Services[0]
		return err == nil && s.Status == "killed by SIGKILL" && !s.Ended.IsZero()
	})
	if existed, err := local.LabDown(t.Context(), name); err != nil || !existed {
		t.Errorf("down: %v, %v", existed, err)
	}
	other := labfile.Request{Name: name, Text: []byte(strings.Replace(text, "[sleep", "[no-such-program-"+name+", sleep", 1))}
	if _, err := local.LabUp(t.Context(), other, nil); err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("a program that is missing: %v", err)
	}
}
