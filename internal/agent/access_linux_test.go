package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/access"
	"netemd/internal/audit"
	"netemd/internal/client"
	"netemd/internal/config"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/lab/labfile"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// nobody is a user who is in no group of anybody's.
const nobody = 65534

// reachable is a state folder that every user can come to.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "nt-agent-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

// group is one of every host, which stands for the socket's here.
const group = "users"

// Who is not in the socket's group gets exit code 7, is told which group it is and how to come
// into it, and is written down. Who is in it, also by a supplementary group, is answered.
func TestUserNotInTheGroup(t *testing.T) {
	gid, ok := groupOf(group)
	if !ok {
		t.Fatalf("this host has no group %s", group)
	}
	dir := reachable(t)
	log := &logged{}
	path := filepath.Join(t.TempDir(), "audit.jsonl")
	_, c := serveWith(t, Config{StateDir: dir, Log: log.logger(), Settings: settings(func(c *config.Config) { c.Socket.Group, c.Audit.Path = group, path })})
	list := func(uid uint32, groups ...uint32) (int, string) {
		t.Helper()
		return netemctl(t, uid, groups, "--socket", filepath.Join(dir, "netemd.sock"), "list")
	}
	code, said := list(nobody)
	if code != 7 || !says(said, "denied: uid 65534 (nobody) may not list", "not in the group users", "hint: ", "sudo usermod -aG users nobody") {
		t.Errorf("not in the group: exit code %d, want 7: %s", code, said)
	}
	if !says(log.String(), "call refused", "Faults/List", "uid 65534") {
		t.Errorf("the log has no such line:\n%s", log)
	}
	lines := auditLines(t, audit.RefusedPath(path))
	if len(lines) != 1 || lines[0].Code != "PermissionDenied" || *lines[0].Peer.UID != nobody || lines[0].Verb != "list" || lines[0].Peer.PID == 0 {
		t.Errorf("the audit log has %+v", lines)
	}
	if code, said := list(nobody, 7, uint32(gid)); code != 0 {
		t.Errorf("by a supplementary group: exit code %d: %s", code, said)
	}
	if code, said := list(0); code != 0 {
		t.Errorf("root: exit code %d: %s", code, said)
	}
	if _, err := c.List(t.Context()); err != nil {
		t.Errorf("root: %v", err)
	}
}

// Where the mode says so the kernel refuses, which nobody writes down; the words are the same.
func TestUserKeptOutByTheKernel(t *testing.T) {
	dir := reachable(t)
	serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Socket.Mode, c.Socket.Group = 0o660, group })})
	code, said := netemctl(t, nobody, nil, "--socket", filepath.Join(dir, "netemd.sock"), "list")
	if code != 7 || !says(said, "permission denied", "hint: ", "sudo usermod -aG users nobody") {
		t.Errorf("exit code %d, want 7: %s", code, said)
	}
}

// On a host without the group everybody but root is refused, and told what is missing.
func TestNoSuchGroup(t *testing.T) {
	dir := reachable(t)
	serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Socket.Group = "no-such" })})
	code, said := netemctl(t, nobody, []uint32{0}, "--socket", filepath.Join(dir, "netemd.sock"), "list")
	if code != 7 || !says(said, "denied: ", "this host has no group no-such", "sudo groupadd --system no-such", "usermod -aG no-such nobody") {
		t.Errorf("exit code %d, want 7: %s", code, said)
	}
}

func TestRules(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	dir := reachable(t)
	socket := filepath.Join(dir, "netemd.sock")
	_, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) {
		c.Socket.Mode = 0o666
		c.Allow = []access.Rule{
			{Users: []string{"65534"}, Verbs: []access.Verb{access.Apply, access.Clear, access.List}, Targets: []string{"dev:v0@" + a}},
			{Groups: []string{"54321"}, Verbs: []access.Verb{access.List}},
			{Users: []string{"4343"}, Verbs: []access.Verb{access.List, access.Packets}, Targets: []string{"redis"}},
		}
	})})
	run := func(uid uint32, groups []uint32, args ...string) (int, string) {
		return netemctl(t, uid, groups, append([]string{"--socket", socket}, args...)...)
	}
	foreign := apply(t, c, fault.Spec{Selector: ports(a, port(5009)), Packet: &qdisc.Netem{Loss: 1}})
	for _, tt := range []struct {
		name string
		uid  uint32
		in   []uint32
		args []string
		code int
		want string
	}{
		{"by user", nobody, nil, []string{"loss", "1%", "--engine", "ebpf", "--dev", "v0", "--netns", a, "--protocol", "udp", "--port", "5001"}, 0, ""},
		{"another device", nobody, nil, []string{"loss", "1%", "--engine", "ebpf", "--dev", "v1", "--netns", b}, 7, "may not apply on dev:v1@" + b + ": allow[0] gives verbs apply, clear, list; targets dev:v0@" + a},
		{"another verb", nobody, nil, []string{"renew", foreign.ID}, 7, "may not renew on dev:v0@" + a},
		{"a name", nobody, nil, []string{"loss", "1%", "--target", "pg"}, 7, "may not apply on pg"},
		{"another's fault", nobody, nil, []string{"clear", foreign.ID}, 1, "belongs to uid 0"},
		{"by supplementary group", 4242, []uint32{7, 54321}, []string{"list"}, 0, foreign.ID},
		{"by group, another verb", 4242, []uint32{54321}, []string{"clear", "--all"}, 7, "may not clear: allow[1] gives verbs list"},
		{"without a rule", 4242, nil, []string{"list"}, 7, "no rule of the agent's configuration names it"},
		{"all of one's own", nobody, nil, []string{"clear", "--all"}, 0, ""},
	} {
		if code, said := run(tt.uid, tt.in, tt.args...); code != tt.code || !strings.Contains(said, tt.want) {
			t.Errorf("%s: exit code %d, want %d, and %q in: %s", tt.name, code, tt.code, tt.want, said)
		}
	}
	ended := apply(t, c, fault.Spec{Selector: ports(a, port(5010)), Packet: &qdisc.Netem{Loss: 1}})
	if _, err := c.Clear(t.Context(), fault.Selector{ID: ended.ID}); err != nil {
		t.Fatal(err)
	}
	if code, said := run(4343, nil, "packets", ended.ID); code != 7 || !strings.Contains(said, "may not packets on what is no longer known") {
		t.Errorf("the packets of a fault that has ended: exit code %d: %s", code, said)
	}
	left, err := c.List(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != foreign.ID {
		t.Errorf("left after clear --all of a user: %+v, %v, want fault %s of root", left, err, foreign.ID)
	}
}

// allowing starts an agent with those rules, which any user of the host reaches, beside a veth
// pair from v0 in a to another namespace. The function runs netemctl as a user.
func allowing(t *testing.T, a string, rules ...access.Rule) (*client.Client, func(uid uint32, args ...string) (code int, said string)) {
	t.Helper()
	pair(t, a, netns(t, "b"))
	dir := reachable(t)
	_, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) { c.Socket.Mode, c.Allow = 0o666, rules })})
	return c, func(uid uint32, args ...string) (int, string) {
		t.Helper()
		return netemctl(t, uid, nil, append([]string{"--socket", filepath.Join(dir, "netemd.sock")}, args...)...)
	}
}

// The packets of a fault that has ended are shown to whom they were shown before.
func TestPacketsOfAnEndedFault(t *testing.T) {
	a := netns(t, "a")
	c, as := allowing(t, a,
		access.Rule{Users: []string{"4343"}, Verbs: []access.Verb{access.Packets}, Targets: []string{"dev:v0@" + a}},
		access.Rule{Users: []string{"4344"}, Verbs: []access.Verb{access.Packets}, Targets: []string{"dev:v1@*"}},
	)
	f := apply(t, c, fault.Spec{
		Content:  &content.Rule{Kind: content.SYN, Count: 1},
		Selector: &target.Selector{Namespace: a, Device: "v0", Protocol: 6, PeerPorts: []target.Ports{port(5011)}},
	})
	for _, when := range []string{"held", "ended"} {
		for uid, want := range map[uint32]int{4343: 0, 4344: 7} {
			code, said := as(uid, "packets", f.ID)
			if code != want || want == 7 && !strings.Contains(said, "may not packets on dev:v0@"+a) {
				t.Errorf("%s, uid %d: exit code %d, want %d: %s", when, uid, code, want, said)
			}
		}
		if when == "ended" {
			break
		}
		if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
			t.Fatal(err)
		}
	}
}

// Who may not do everything clears each fault of his at a device, whatever it does: also
// where the device has another name by now.
func TestUserClearsADevice(t *testing.T) {
	a := netns(t, "a")
	c, as := allowing(t, a, access.Rule{Users: []string{"65534"}, Verbs: []access.Verb{access.Apply, access.Clear}, Targets: []string{"dev:v*@" + a}})
	run := func(args ...string) {
		t.Helper()
		if code, said := as(nobody, args...); code != 0 {
			t.Errorf("%v: exit code %d: %s", args, code, said)
		}
	}
	at := []string{"--engine", "ebpf", "--dev", "v0", "--netns", a}
	run(append([]string{"loss", "1%", "--protocol", "udp", "--port", "5001"}, at...)...)
	run(append([]string{"drop", "syn", "--protocol", "tcp", "--port", "5002"}, at...)...)
	if err := namespaces.Do(t.Context(), a, func() error { return rename("v0", "v9") }); err != nil {
		t.Fatal(err)
	}
	if held, err := c.List(t.Context()); err != nil || len(held) != 2 {
		t.Fatalf("held: %+v, %v", held, err)
	}
	run("clear", "--dev", "v9", "--netns", a)
	if left, err := c.List(t.Context()); err != nil || len(left) != 0 {
		t.Errorf("left: %+v, %v", left, err)
	}
}

// rename gives a device of the thread's namespace another name.
func rename(from, to string) error {
	link, err := netlink.LinkByName(from)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetDown(link), netlink.LinkSetName(link, to), netlink.LinkSetUp(link))
}

// Peers without any right take no more than a few connections, one of them fewer, and none for
// long.
func TestStrangers(t *testing.T) {
	p, err := access.New([]access.Rule{{Users: []string{"7"}, Verbs: []access.Verb{access.List}}})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &admission{policy: p}
		admit := func(uid uint32) (net.Conn, error) {
			return s.admit(&discard{}, peerInfo{uid: uid, owner: fmt.Sprintf("uid %d", uid)})
		}
		var open []net.Conn
		for i := range uint32(maxStrangers) {
			c, err := admit(100 + i/maxOfStranger)
			if err != nil {
				t.Fatalf("connection %d: %v", i, err)
			}
			open = append(open, c)
		}
		if _, err := admit(8); !errors.Is(err, fault.ErrDenied) {
			t.Errorf("one more: %v, want denied", err)
		}
		if _, err := admit(7); err != nil {
			t.Errorf("a peer with rights: %v", err)
		}
		_ = open[0].Close()
		_ = open[0].Close() // counts once
		_ = open[maxOfStranger].Close()
		if _, err := admit(100); err != nil {
			t.Errorf("after one went: %v", err)
		}
		if _, err := admit(100); !errors.Is(err, fault.ErrDenied) || !says(err.Error(), "uid 100", fmt.Sprint(maxOfStranger)) {
			t.Errorf("more than one of them may have: %v, want denied", err)
		}
		if _, err := admit(8); err != nil {
			t.Errorf("there is room for another: %v", err)
		}
		if _, err := admit(9); err == nil {
			t.Error("one connection that was closed twice made room for two")
		}
		time.Sleep(strangerTime)
		synctest.Wait()
		for i := range uint32(maxStrangers) {
			if _, err := admit(100 + i/maxOfStranger); err != nil {
				t.Fatalf("connection %d after the time of the others: %v", i, err)
			}
		}
		time.Sleep(strangerTime)
	})
}

// Who may do something cannot take all descriptors, or all of the TCP connections; root can.
func TestConnectionsOfAPeer(t *testing.T) {
	p, err := access.New([]access.Rule{{Users: []string{"7"}, Certificates: []string{"ci"}, Verbs: []access.Verb{access.List}}})
	if err != nil {
		t.Fatal(err)
	}
	s := &admission{policy: p}
	for name, tt := range map[string]struct {
		peer peerInfo
		most int
	}{
		"a user":        {peerInfo{uid: 7, owner: "uid 7"}, maxOfUser},
		"a certificate": {peerInfo{commonName: "ci", owner: "certificate CN ci"}, maxOfCertificate},
	} {
		var last net.Conn
		for i := range tt.most {
			if last, err = s.admit(&discard{}, tt.peer); err != nil {
				t.Fatalf("%s, connection %d: %v", name, i, err)
			}
		}
		if _, err := s.admit(&discard{}, tt.peer); !errors.Is(err, fault.ErrBusy) || !says(err.Error(), tt.peer.owner, fmt.Sprint(tt.most)) {
			t.Errorf("%s, one more: %v, want busy", name, err)
		}
		_ = last.Close()
		if _, err := s.admit(&discard{}, tt.peer); err != nil {
			t.Errorf("%s, after one went: %v", name, err)
		}
	}
	for range 2 * maxOfUser {
		if _, err := s.admit(&discard{}, peerInfo{owner: "uid 0 (root)"}); err != nil {
			t.Fatalf("root: %v", err)
		}
	}
}

// Rules name what a fault of requests, or of processes, is aimed at: the target, and each
// service.
func TestRulesOfServicesAndRequests(t *testing.T) {
	testenv.Root(t)
	dir := reachable(t)
	name := fmt.Sprintf("nt-rules-%d", os.Getpid())
	_, c := serveWith(t, Config{StateDir: dir, Settings: settings(func(c *config.Config) {
		c.Socket.Mode = 0o666
		c.Allow = []access.Rule{{
			Users: []string{"65534"}, Verbs: []access.Verb{access.Apply, access.Clear, access.List}, Targets: []string{name + "/web", name + "/http"},
		}}
	})})
	if _, err := c.LabUp(t.Context(), labfile.Request{Name: "echo", As: name}, nil); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (int, string) {
		return netemctl(t, nobody, nil, append([]string{"--socket", filepath.Join(dir, "netemd.sock")}, args...)...)
	}
	roots, err := c.Apply(t.Context(), fault.Spec{Outage: &fault.Outage{Action: fault.Stop, Services: []string{name + "/rpc"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args string
		code int
		want string
	}{
		{"process stop LAB/echo --down 10ms", 7, "may not apply on LAB/echo"},
		{"process stop LAB/web LAB/echo --down 10ms", 7, "may not apply on LAB/echo"},
		{"process stop LAB/web --down 10ms", 0, ""},
		{"app error --target LAB/grpc --rate 5% --status 503", 7, "may not apply on LAB/grpc"},
		{"app error --target LAB/http --rate 5% --status 503", 0, ""},
		{"lab server LAB/echo --reset", 7, "may not apply on LAB/echo"},
		{"clear " + roots.ID, 7, "may not clear on LAB/rpc"},
		{"clear --all", 0, ""},
	} {
		code, said := run(strings.Fields(strings.ReplaceAll(tt.args, "LAB", name))...)
		if want := strings.ReplaceAll(tt.want, "LAB", name); code != tt.code || !strings.Contains(said, want) {
			t.Errorf("%s: exit code %d, want %d, and %q in: %s", tt.args, code, tt.code, want, said)
		}
	}
	left, err := c.List(t.Context())
	if err != nil || len(left) != 1 || left[0].ID != roots.ID {
		t.Errorf("left after clear --all of a user: %+v, %v, want fault %s of root", left, err, roots.ID)
	}
}
