package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/wire"
	"netemd/namespaces"
	"netemd/qdisc"
)

// connects reports whether a SYN to an address is answered: nobody listens there, so that it
// is refused at once, unless it is lost.
func connects(t testing.TB, ns, address string) (ok bool) {
	t.Helper()
	err := namespaces.Do(t.Context(), ns, func() error {
		c, err := net.DialTimeout("tcp", address, 700*time.Millisecond) //nolint:noctx // bounded
		if err == nil {
			ok = true
			return c.Close()
		}
		ok = errors.Is(err, unix.ECONNREFUSED)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// reaches is connects of a slow machine, which may need several tries.
func reaches(t testing.TB, ns, address string) bool {
	t.Helper()
	for range 20 {
		if connects(t, ns, address) {
			return true
		}
	}
	return false
}

// sleeper starts a process that does nothing in a namespace, until the test ends.
func sleeper(t testing.TB, ns string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := namespaces.Start(ns, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// lossOf is a loss of everything to a target.
func lossOf(text string) fault.Spec {
	return fault.Spec{Target: text, Engine: packetEngine(), Packet: &qdisc.Netem{Loss: 100}, TTL: time.Minute}
}

// A fault at each kind of target loses what goes there, and nothing else; cleared, all is as
// before.
func TestKindsOfTargets(t *testing.T) {
	a, b, other := netns(t, "ka"), netns(t, "kb"), netns(t, "kc")
	pair(t, a, b)
	if err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: a, Name: "w0", Addresses: []netip.Prefix{netip.MustParsePrefix("10.79.0.1/24")}},
		namespaces.VethEnd{Namespace: other, Name: "w1", Addresses: []netip.Prefix{netip.MustParsePrefix("10.79.0.2/24")}}); err != nil {
		t.Fatal(err)
	}
	pid := sleeper(t, b).Process.Pid
	c := serve(t)
	add := func(d target.Definition) string {
		got, err := c.AddTarget(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if got.Origin != target.OriginAdded || got.To.Device == "" {
			t.Errorf("%s: %+v", d.Name, got)
		}
		return d.Name
	}
	const hit, beside, elsewhere = "10.78.0.2:5432", "10.78.0.2:5433", "10.79.0.2:5432"
	for _, tt := range []struct {
		name, target string
		oneway       fault.Direction
		ports        bool
		// once is for the machine itself: an emulated one takes a place of each kind.
		once bool
	}{
		{"interface", add(target.Definition{Name: "k-dev", Device: "v0", Namespace: a}), fault.To, false, true},
		{"address_in", add(target.Definition{Name: "k-in", AddressIn: netip.MustParsePrefix("10.78.0.0/24"), Namespace: a}), fault.To, false, true},
		{"host", add(target.Definition{Name: "k-host", Host: "10.78.0.2", Namespace: a, Ports: []target.Ports{target.Port(5432)}}), fault.To, true, false},
		{"host, from", "k-host", fault.From, true, true},
		{"netns", "netns:" + b, fault.To, false, false},
		{"netns, from", "netns:" + b, fault.From, false, true},
		{"netns, its device", "netns:" + b + "%v1", fault.To, false, true},
		{"netns, its device, added", add(target.Definition{Name: "k-ns", Namespace: b + "%v1"}), fault.To, false, true},
		{"netns by its path", fmt.Sprintf("netns:/proc/%d/ns/net:5432", pid), fault.To, true, true},
		{"pid", fmt.Sprintf("pid:%d", pid), fault.To, false, true},
		{"pid with a port", fmt.Sprintf("pid:%d:5432/tcp", pid), fault.To, true, true},
		{"pid, its device", fmt.Sprintf("pid:%d%%v1:5432", pid), fault.From, true, false},
	} {
		if tt.once && testing.Short() && os.Getenv("NETEMD_TEST_VM") != "" {
			continue
		}
		spec := lossOf(tt.target)
		spec.Direction = tt.oneway
		f, err := c.Apply(t.Context(), spec)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if connects(t, a, hit) {
			t.Errorf("%s: the target answers under a loss of 100%% (%s)", tt.name, f.Placement)
		}
		if tt.ports && !reaches(t, a, beside) {
			t.Errorf("%s: another port of the target does not answer", tt.name)
		}
		if !reaches(t, a, elsewhere) {
			t.Errorf("%s: another host does not answer", tt.name)
		}
		if cleared, err := c.Clear(t.Context(), fault.Selector{Target: tt.target}); err != nil || len(cleared) != 1 {
			t.Errorf("%s: cleared %d, %v", tt.name, len(cleared), err)
		}
		if !reaches(t, a, hit) {
			t.Errorf("%s: cleared, and the target does not answer", tt.name)
		}
	}
	got, err := c.Resolve(t.Context(), "netns:"+b)
	if err != nil || got.To.Device != "v1" || got.To.Hook != target.Ingress || got.From.Hook != target.Egress || len(got.Engines) != 2 {
		t.Errorf("resolve: %+v, %v", got, err)
	}
	names := map[string]target.Origin{}
	all, err := c.Targets(t.Context())
	for _, x := range all {
		names[x.Name] = x.Origin
	}
	if err != nil || len(names) != 4 || names["k-host"] != target.OriginAdded {
		t.Errorf("targets: %v, %v", names, err)
	}
}

// A target with a fault on it is removed when its faults may be cleared, and not before.
func TestRemoveTarget(t *testing.T) {
	a, b := netns(t, "ra"), netns(t, "rb")
	pair(t, a, b)
	c := serve(t)
	if _, err := c.AddTarget(t.Context(), target.Definition{Name: "x", Namespace: b}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AddTarget(t.Context(), target.Definition{Name: "x", Namespace: b}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	if _, err := c.AddTarget(t.Context(), target.Definition{Name: "x", Namespace: a}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("another one of the name: %v", err)
	}
	f, err := c.Apply(t.Context(), lossOf("x"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.RemoveTarget(t.Context(), "x", false); !errors.Is(err, fault.ErrConflict) || !strings.Contains(err.Error(), f.ID) {
		t.Errorf("with a fault on it: %v, want a conflict that names %s", err, f.ID)
	}
	cleared, err := c.RemoveTarget(t.Context(), "x", true)
	if err != nil || len(cleared) != 1 || !reaches(t, a, "10.78.0.2:5432") {
		t.Errorf("forced: %v, %v", cleared, err)
	}
	if _, err := c.RemoveTarget(t.Context(), "x", true); !errors.Is(err, target.ErrUnknown) {
		t.Errorf("again: %v", err)
	}
}

// What is not there, or stands for several, is said with what there is.
func TestTargetsThatAreNot(t *testing.T) {
	a, b := netns(t, "na"), netns(t, "nb")
	pair(t, a, b)
	two := netns(t, "n2")
	for _, peer := range []string{"e1", "e2"} {
		if err := namespaces.CreateVeth(namespaces.VethEnd{Namespace: two, Name: peer}, namespaces.VethEnd{Namespace: a, Name: "to" + peer}); err != nil {
			t.Fatal(err)
		}
	}
	gone := sleeper(t, b)
	pid := gone.Process.Pid
	_ = gone.Process.Kill()
	_ = gone.Wait()
	c := serve(t)
	ghost := filepath.Join(t.TempDir(), "ghost")
	if err := os.WriteFile(ghost, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]struct {
		is   error
		says string
	}{
		fmt.Sprintf("pid:%d", pid):                        {target.ErrVanished, "no such file"},
		fmt.Sprintf("pid:%d", os.Getpid()):                {errors.ErrUnsupported, "in the network namespace of the agent"},
		"netns:" + ghost:                                  {target.ErrVanished, "not a network namespace (nsfs)"},
		"netns:" + pipe:                                   {target.ErrVanished, "not a network namespace (nsfs)"},
		fmt.Sprintf("netns:/proc/%d/ns/mnt", os.Getpid()): {qdisc.ErrInvalid, "not a network namespace (nsfs)"},
		fmt.Sprintf("netns:/proc/%d/ns/net", pid):         {target.ErrVanished, "no such file"},
		"netns:" + ghost + "-gone":                        {target.ErrVanished, "want "},
		"netns:nt-agent-nothere":                          {target.ErrVanished, "want a network namespace that exists: "},
		"netns:" + two:                                    {qdisc.ErrInvalid, "e1, e2"},
		"netns:" + two + "%e3":                            {target.ErrVanished, "e1, e2"},
		"netns:" + two + "%":                              {qdisc.ErrInvalid, "netns"},
		"container:nothere":                               {nil, "unknown container"},
		"host:203.0.113.7%x":                              {qdisc.ErrInvalid, "host"},
	} {
		begin := time.Now()
		_, err := c.Apply(t.Context(), lossOf(text))
		if err == nil || want.is != nil && !errors.Is(err, want.is) || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v, want %v: %q", text, err, want.is, want.says)
		}
		if took := time.Since(begin); took > 20*time.Second {
			t.Errorf("%s: took %v", text, took)
		}
	}
	// The device of a namespace whose process has gone is lost, cleared with its target's name.
	at := sleeper(t, b)
	if _, err := c.Apply(t.Context(), fault.Spec{
		Selector: &target.Selector{Namespace: namespaces.OfProcess(at.Process.Pid), Device: "v1"}, Engine: packetEngine(), Packet: &qdisc.Netem{Loss: 100},
	}); err != nil {
		t.Errorf("a device by a namespace's path: %v", err)
	}
	if connects(t, a, "10.78.0.2:80") {
		// Ingress is what would be lost from; egress of v1 loses the answers.
		t.Error("a device by a namespace's path: nothing is lost")
	}
	if _, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil {
		t.Error(err)
	}
}

// Added targets outlive a kill, and are not taken from a file that cannot be read.
func TestAddedTargetsAreKept(t *testing.T) {
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	d := openDefinitions(dir, nil, log)
	want := target.Definition{Name: "web", Container: "web", Ports: []target.Ports{target.Port(80)}, Protocol: 6}
	if err := d.add(want, holder{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, addedNew), []byte("{"), 0o600); err != nil { // as of a kill
		t.Fatal(err)
	}
	got, origin, ok := openDefinitions(dir, nil, log).find("web")
	if !ok || origin != target.OriginAdded || got.String() != want.String() {
		t.Errorf("%v %s %t", got, origin, ok)
	}
	if err := os.WriteFile(filepath.Join(dir, addedName), []byte(`{"schemaVersion":1,"targets":[{"name":"../x"}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	if d := openDefinitions(dir, nil, log); len(d.names()) != 0 {
		t.Errorf("from a bad file: %v", d.names())
	}
	if _, err := os.Stat(filepath.Join(dir, addedBad)); err != nil {
		t.Errorf("the bad file: %v", err)
	}
	for i := range maxAdded {
		if err := d.add(target.Definition{Name: fmt.Sprintf("t%d", i), PID: i + 1}, holder{}); err != nil && i < maxAdded-1 {
			t.Fatal(err)
		}
	}
	if err := d.add(target.Definition{Name: "more", PID: 1}, holder{}); !errors.Is(err, fault.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
}

// Who may use some names reaches nothing else by an inline form, or by giving a name.
func TestAccessByWhatANameStandsFor(t *testing.T) {
	policy, err := access.New([]access.Rule{
		{Users: []string{"1001"}, Verbs: []access.Verb{access.Apply, access.Target}, Targets: []string{"pg*", "container:mine*", "host:*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ag, _ := serveWith(t, Config{})
	ag = &Agent{policy: policy, labs: ag.labs, definitions: openDefinitions(t.TempDir(), nil, slog.New(slog.DiscardHandler))}
	may := func(req any, verb access.Verb) bool {
		c := &call{verb: verb, peer: peerInfo{uid: 1001, owner: "uid 1001"}}
		switch r := req.(type) {
		case string:
			return ag.authorize(c, &netemv1.ApplyRequest{Spec: &netemv1.FaultSpec{Target: r}}) == nil
		case target.Definition:
			return ag.authorize(c, &netemv1.AddTargetRequest{Definition: wire.Definition(r)}) == nil
		}
		return false
	}
	for text, want := range map[string]bool{
		"pg": true, "pg2": true, "redis": false, "container:mine": true, "container:mine2:80": true, "container:mine%eth1": true,
		"container:pg": false, "pid:1": false, "netns:pg": false, "host:pg": true, "cgroup:/pg": false, "unit:pg.service": false, "host:pg:80": true,
	} {
		if got := may(text, access.Apply); got != want {
			t.Errorf("apply on %s: %t, want %t", text, got, want)
		}
	}
	for _, tt := range []struct {
		d    target.Definition
		want bool
	}{
		{target.Definition{Name: "pg-mine", Container: "mine"}, true},
		{target.Definition{Name: "pg-other", Container: "other"}, false},
		{target.Definition{Name: "mine", Container: "mine"}, false},
		{target.Definition{Name: "pg-dev", Device: "eth0"}, false},
		{target.Definition{Name: "pg-host", Host: "db"}, true},
		{target.Definition{Name: "pg-host", Host: "db", Namespace: "blue"}, false},
		{target.Definition{Name: "pg-ns", Namespace: "pg"}, false},
	} {
		if got := may(tt.d, access.Target); got != tt.want {
			t.Errorf("add %s = %s: %t, want %t", tt.d.Name, tt.d, got, tt.want)
		}
	}
}
