package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/lab"
	"netemd/internal/lab/labfile"
	"netemd/namespaces"
	"netemd/qdisc"
)

// copyable is a lab with a base impairment of 30 ms towards its target.
const copyable = `
lab: base
nodes: {client: {}, server: {}}
links: [{a: client, b: server, a_to_b: {delay: 30ms}}]
targets: {web: {node: server, port: 80}}
`

// connect returns how long a connection to the lab's target took to be made.
func connect(t *testing.T, lab string) time.Duration {
	t.Helper()
	within := func(node string, f func() error) {
		t.Helper()
		if err := namespaces.Do(t.Context(), "netem-"+lab+"-"+node, f); err != nil {
			t.Fatal(err)
		}
	}
	var l net.Listener
	within("server", func() (err error) {
		l, err = net.Listen("tcp", "10.64.0.2:80")
		return err
	})
	defer func() { _ = l.Close() }()
	var took time.Duration
	within("client", func() error {
		began := time.Now()
		c, err := net.DialTimeout("tcp", l.Addr().String(), 20*time.Second)
		if err == nil {
			took = time.Since(began)
			_ = c.Close()
		}
		return err
	})
	return took
}

// takes checks that a connection takes at least so long, and less than so long at least once
// in a while: a busy machine is slow, but never fast.
func takes(t *testing.T, lab string, least, most time.Duration) {
	t.Helper()
	fastest := time.Hour
	for range 50 {
		took := connect(t, lab)
		if fastest = min(fastest, took); took < least {
			t.Fatalf("a connection took %v, want %v at least", took, least)
		}
		if fastest < most {
			return
		}
	}
	t.Errorf("the fastest connection took %v, want less than %v", fastest, most)
}

// TestCopiesOfLab has two copies of a lab with a base impairment, of which one has a fault.
func TestCopiesOfLab(t *testing.T) {
	c := serve(t)
	names := []string{fmt.Sprintf("nt-agent-%d-a", os.Getpid()), fmt.Sprintf("nt-agent-%d-b", os.Getpid())}
	up := func(name string) {
		t.Helper()
		_, err := c.LabUp(t.Context(), labfile.Request{Name: "base", Text: []byte(copyable), From: labfile.Source{Path: "base.yaml"}, As: name}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	up(names[0])
	takes(t, names[0], 30*time.Millisecond, 60*time.Millisecond)
	spec := fault.Spec{Target: "web", Direction: fault.To, Packet: &qdisc.Netem{Delay: 50 * time.Millisecond}}
	f, err := c.Apply(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if want := names[0] + "/web"; f.Spec.Target != want {
		t.Errorf("the fault is kept as on %q, want %q", f.Spec.Target, want)
	}
	takes(t, names[0], 80*time.Millisecond, 130*time.Millisecond) // both, one after the other

	up(names[1])
	takes(t, names[1], 30*time.Millisecond, 60*time.Millisecond)
	candidates := names[0] + "/web, " + names[1] + "/web"
	if _, err := c.Apply(t.Context(), spec); !errors.Is(err, lab.ErrAmbiguous) || !strings.Contains(err.Error(), candidates) {
		t.Errorf("a fault on a name that two labs have: %v, want one that names %s", err, candidates)
	}
	// The fault from before goes on, and so it does when the other lab goes.
	if got, err := c.Get(t.Context(), f.ID); err != nil || got.State != fault.Active {
		t.Errorf("the fault from before: %+v, %v", got, err)
	}
	if _, err := c.LabDown(t.Context(), names[1]); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), f.ID); err != nil || got.State != fault.Active {
		t.Errorf("the fault after the end of the other lab: %+v, %v", got, err)
	}
	whole(t, c, names[0])
	if _, err := c.LabDown(t.Context(), names[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), f.ID); err == nil {
		t.Error("the fault outlives its lab")
	}
}

// whole checks that the lab is as it should be, and that a part which goes is missed.
func whole(t *testing.T, c *client.Client, name string) {
	t.Helper()
	found, err := c.LabDiff(t.Context(), labfile.Request{Name: name})
	if err != nil || len(found) > 0 {
		t.Errorf("the lab differs by %v, %v", found, err)
	}
	other := strings.Replace(copyable, "30ms", "31ms", 1)
	found, err = c.LabDiff(t.Context(), labfile.Request{Name: "base", Text: []byte(other), As: name})
	if err != nil || len(found) != 1 || found[0].Path != "links[0]" {
		t.Errorf("from another text it differs by %v, %v", found, err)
	}
	if _, err := c.LabDiff(context.Background(), labfile.Request{Name: "nope"}); !errors.Is(err, lab.ErrUnknown) {
		t.Errorf("of no lab: %v", err)
	}
}
