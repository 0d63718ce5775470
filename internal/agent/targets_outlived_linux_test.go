package agent

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/internal/testenv"
)

// A network namespace with a name outlives the container or process that was in it, as those
// of pods do: the fault is lost with these, and who has the namespace next is not impaired.
func TestNamespaceOutlivesItsTarget(t *testing.T) {
	for _, engine := range []fault.Engine{fault.EBPF, fault.Netem} {
		for _, kind := range []string{"pid", "container"} {
			t.Run(fmt.Sprintf("%s/%s", engine, kind), func(t *testing.T) { outlived(t, kind, engine) })
		}
	}
}

// contained is a process in the control group of a container, with the target's text.
func contained(t *testing.T, group *testenv.Cgroup, ns string) (*exec.Cmd, string) {
	t.Helper()
	cmd := sleeper(t, ns)
	if group == nil {
		return cmd, fmt.Sprintf("pid:%d%%v1", cmd.Process.Pid)
	}
	group.Add(t, cmd.Process.Pid)
	parts := strings.Split(group.Path, "docker-")
	return cmd, "container:" + parts[len(parts)-1][:12]
}

func outlived(t *testing.T, kind string, engine fault.Engine) {
	a, b, elsewhere := netns(t, "oa"), netns(t, "ob"), netns(t, "oc")
	pair(t, a, b)
	var group *testenv.Cgroup
	if kind == "container" {
		group = testenv.NewCgroup(t, "out/docker-"+strings.Repeat("ab12", 16)+".scope")
	}
	first, text := contained(t, group, b)
	ag, c := serveWith(t, Config{})
	if ag.engines[engine] == nil {
		t.Skipf("this kernel lacks what engine %s needs", engine)
	}
	const hit = "10.78.0.2:5432"
	spec := lossOf(text)
	spec.Engine, spec.TTL, spec.Reattach = engine, time.Minute, kind == "container"
	f, err := c.Apply(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if connects(t, a, hit) {
		t.Fatalf("nothing is lost: %s", f.Placement)
	}
	if kind == "container" { // another process of it is still the container
		second, _ := contained(t, group, b)
		_ = first.Process.Kill()
		_ = first.Wait()
		ag.leases.List(t.Context())
		if got, err := c.Get(t.Context(), f.ID); err != nil || got.State != fault.Active {
			t.Errorf("with a process left: %s (%s), %v", got.State, got.Reason, err)
		}
		first = second
	}
	_ = first.Process.Kill()
	_ = first.Wait()
	var got fault.Fault
	eventually(t, "lost", func() bool {
		got, err = c.Get(t.Context(), f.ID)
		return err == nil && got.State == fault.Lost
	})
	if !strings.Contains(got.Reason, "has ended") || strings.Contains(got.Reason, "device") {
		t.Errorf("reason %q", got.Reason)
	}
	if !reaches(t, a, hit) {
		t.Error("who has the namespace now is still impaired")
	}
	if kind == "container" { // it comes back elsewhere, and is impaired there
		pair(t, elsewhere, netnsWithProcess(t, group))
		eventually(t, "reattached", func() bool {
			got, err = c.Get(t.Context(), f.ID)
			return err == nil && got.State == fault.Active
		})
		if connects(t, elsewhere, hit) || !reaches(t, a, hit) {
			t.Errorf("reattached at the %s", got.Placement)
		}
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
		t.Error(err)
	}
}

// netnsWithProcess is another namespace in which the container runs.
func netnsWithProcess(t *testing.T, group *testenv.Cgroup) string {
	t.Helper()
	ns := netns(t, "od")
	contained(t, group, ns)
	return ns
}
