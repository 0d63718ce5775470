package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/namespaces"
)

// packetList is the data of `netemctl packets`.
type packetList struct {
	ID      string       `json:"id"`
	Chosen  int          `json:"chosen_packets"`
	Missed  int          `json:"missed_packets"`
	Packets []packetLine `json:"packets"`
}

// packetLine has the fields of a chosen packet that the tests look at.
type packetLine struct {
	Time        time.Time `json:"time"`
	Source      string    `json:"source"`
	Destination string    `json:"destination"`
	Protocol    string    `json:"protocol"`
	Flags       []string  `json:"tcp_flags"`
	Sequence    *uint32   `json:"sequence"`
	Wire        int       `json:"wire_packets"`
}

// TestDrop is what one lab is enough for; each part begins and ends without a fault.
func TestDrop(t *testing.T) {
	a := startAt(t, home{config: "socket: {group: nogroup}\n"}) // the other user's
	a.must("lab", "up", "pg")
	for _, part := range []struct {
		name string
		test func(*testing.T, agent)
	}{
		{"a command beside a lost SYN", testLostSYN},
		{"held SYN", testHeldSYN},
		{"two owners", testTwoOwners},
		{"followed", testFollowed},
		{"beside loss", testRuleBesideLoss},
	} {
		t.Run(part.name, func(t *testing.T) {
			a := *a
			a.t = t
			part.test(t, a)
			a.must("clear", "--all")
			if took := connects(t); took > 900*time.Millisecond {
				t.Errorf("once all is cleared a connect takes %v", took)
			}
		})
	}
}

// connecting opens a connection to PostgreSQL from the client and says how many ns that
// took.
var connecting = []string{
	"ip", "netns", "exec", "netem-pg-client", "bash", "-c",
	"a=$(date +%s%N); exec 3<>/dev/tcp/10.77.0.2/5432 && echo $(($(date +%s%N)-a))",
}

// connects is how long a connect takes.
func connects(t *testing.T) time.Duration {
	t.Helper()
	return tookOf(t, run(t, exec.Command(connecting[0], connecting[1:]...)))
}

func tookOf(t *testing.T, r result) time.Duration {
	t.Helper()
	ns, err := strconv.ParseInt(strings.TrimSpace(r.stdout), 10, 64)
	if r.code != 0 || err != nil {
		t.Fatalf("connect: exit code %d, %q: %s", r.code, r.stdout, r.stderr)
	}
	return time.Duration(ns)
}

// oneSYN checks that a list has the client's SYN and nothing else.
func oneSYN(t *testing.T, l packetList) {
	t.Helper()
	if len(l.Packets) != 1 || l.Chosen != 1 || l.Missed != 0 {
		t.Fatalf("%+v, want one packet", l)
	}
	p := l.Packets[0]
	if !strings.HasPrefix(p.Source, "10.77.0.1:") || p.Destination != "10.77.0.2:5432" || p.Protocol != "tcp" || !cmp.Equal(p.Flags, []string{"syn"}) ||
		p.Sequence == nil || p.Wire != 1 || time.Since(p.Time) > time.Minute {
		t.Errorf("%+v, want a SYN of the client's of a moment ago", p)
	}
}

// testLostSYN: the command's connect waits for the retransmission after 1 s, and the
// packet is named; the next connect is undisturbed.
func testLostSYN(t *testing.T, a agent) {
	r := a.must(append([]string{"drop", "syn", "--count", "1", "--target", "pg", "--"}, connecting...)...)
	took := tookOf(t, r)
	t.Logf("the connect took %v", took)
	// One lost SYN; a second one would make it 2 s at least (tcp_syn_linear_timeouts), and
	// what is above 1 s is the machine's.
	if took < 990*time.Millisecond || took > 1990*time.Millisecond {
		t.Errorf("the connect took %v, want 1 s and a little", took)
	}
	if got := regexp.MustCompile(`(?m)^chosen: .*10\.77\.0\.1:\d+ -> 10\.77\.0\.2:5432  tcp syn, seq \d+$`).FindAllString(r.stderr, -1); len(got) != 1 || strings.Count(r.stderr, "chosen:") != 1 {
		t.Errorf("netemctl said, without one line for one SYN:\n%s", r.stderr)
	}
	id, _, _ := strings.Cut(r.stderr, " ")
	oneSYN(t, data[packetList](t, a.must("packets", id, "-o", "json"), "packets"))
	if took := connects(t); took > 900*time.Millisecond {
		t.Errorf("the next connect took %v", took)
	}

	r = a.ctl("drop", "rst", "--target", "pg", "--", "true")
	if r.code != 4 || !strings.Contains(r.stderr, "no packet was chosen") {
		t.Errorf("beside a rule that never acts: exit code %d, %s", r.code, r.stderr)
	}
	if r := a.ctl("drop", "syn", "--target", "pg", "--engine", "netem"); r.code != 6 || !strings.Contains(r.stderr, "only the ebpf engine") {
		t.Errorf("on netem: exit code %d, %s", r.code, r.stderr)
	}
}

// testHeldSYN: it comes late, and is not lost: the list of both ends' packets shows one.
func testHeldSYN(t *testing.T, a agent) {
	a.must("hold", "syn", "--for", "400ms", "--count", "1", "--target", "pg")
	took := connects(t)
	t.Logf("the connect took %v", took)
	if took < 395*time.Millisecond {
		t.Errorf("the connect took %v, want 400 ms at least", took)
	}
	held := id(t, a)
	oneSYN(t, data[packetList](t, a.must("packets", held, "-o", "json"), "packets"))
	if got := a.must("show", held).stdout; !strings.Contains(got, "1 delayed") || !strings.Contains(got, "the rule rests") {
		t.Errorf("show says:\n%s", got)
	}
	if r := a.ctl("change", held, "--loss", "5%"); r.code != 2 || !strings.Contains(r.stderr, "does not change in place") {
		t.Errorf("change: exit code %d, %s", r.code, r.stderr)
	}
	if r := a.ctl("verify", held); r.code != 6 {
		t.Errorf("verify: exit code %d, want 6: %s", r.code, r.stderr)
	}
	a.must("renew", held, "--ttl", "1h")
	if list := data[faultList](t, a.must("list", "-o", "json"), "faults"); list.Faults[0].State != "active" {
		t.Errorf("after a renewal: %+v", list)
	}
	a.must("clear", held)
	if r := a.ctl("show", held); r.code != 1 {
		t.Errorf("after clear: exit code %d, %s", r.code, r.stdout)
	}
}

// other runs netemctl as another user, of the socket's group.
func (a *agent) other(args ...string) result {
	a.t.Helper()
	open, err := os.MkdirTemp("", "netemd-e2e-bin-") // t.TempDir lets no other user through
	if err != nil {
		a.t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(open) }()
	program := filepath.Join(open, "netemctl")
	text, err := os.ReadFile(filepath.Join(bin, "netemctl"))
	if err := errors.Join(err, os.WriteFile(program, text, 0o755), os.Chmod(open, 0o755)); err != nil {
		a.t.Fatal(err)
	}
	cmd := exec.Command(program, append(args, "--socket", a.socket)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	return run(a.t, cmd)
}

// testTwoOwners: the same rule on the same flow is a conflict that names its holder;
// another one stands beside it, and each is cleared by itself.
func testTwoOwners(t *testing.T, a agent) {
	a.must("drop", "syn", "--target", "pg", "--ttl", "5m")
	first := id(t, a)
	r := a.other("drop", "syn", "--target", "pg")
	if r.code != 1 || !strings.Contains(r.stderr, "conflict") || !strings.Contains(r.stderr, "uid 0 (root) with fault "+first+" (applied ") ||
		!strings.Contains(r.stderr, "ends in ") || !strings.Contains(r.stderr, "netemctl show "+first) {
		t.Errorf("the same rule: exit code %d, %s", r.code, r.stderr)
	}
	if r := a.ctl("drop", "syn", "--target", "pg"); r.code != 1 || !strings.Contains(r.stderr, first) {
		t.Errorf("the same rule by its owner: exit code %d, %s", r.code, r.stderr)
	}
	if r := a.other("drop", "fin", "--target", "pg"); r.code != 0 {
		t.Errorf("another rule: exit code %d, %s", r.code, r.stderr)
	}
	if r := a.other("clear", first); r.code != 1 {
		t.Errorf("the other user clears it: exit code %d, %s", r.code, r.stderr)
	}
	if reaches(t) {
		t.Error("without any SYN a connection came about")
	}
	a.must("clear", first)
	if !reaches(t) {
		t.Error("the SYNs are still dropped")
	}
	if r := a.must("clear", "--target", "pg"); !strings.Contains(r.stdout, "drop fin to pg") {
		t.Errorf("clear --target said: %s", r.stdout)
	}
}

// testFollowed: packets tells of each packet as it is chosen, and ends with the fault.
func testFollowed(t *testing.T, a agent) {
	a.must("drop", "syn", "--count", "1", "--per-connection", "--target", "pg")
	fault := id(t, a)
	cmd := exec.Command(filepath.Join(bin, "netemctl"), "packets", fault, "--follow", "-o", "jsonl", "--socket", a.socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	lines := bufio.NewScanner(out)
	seen := map[string]bool{}
	for range 2 {
		if took := connects(t); took < 990*time.Millisecond {
			t.Errorf("the connect took %v, want its SYN lost", took)
		}
		if !lines.Scan() {
			t.Fatalf("no line: %v", lines.Err())
		}
		var p packetLine
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		seen[p.Source] = true
	}
	a.must("clear", fault)
	if lines.Scan() {
		t.Errorf("one line more: %s", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("packets --follow ended with %v", err)
	}
	if len(seen) != 2 {
		t.Errorf("sources %v, want those of two connections", seen)
	}
}

// testRuleBesideLoss: a rule stands beside an impairment of the same packets, on either
// engine, and either goes without the other.
func testRuleBesideLoss(t *testing.T, a agent) {
	for _, engine := range engines() {
		a.must("delay", "100ms", "--target", "pg", "--engine", engine)
		slow := id(t, a)
		r := a.must(append([]string{"drop", "syn", "--count", "1", "--target", "pg", "--"}, connecting...)...)
		if took := tookOf(t, r); took < 1090*time.Millisecond {
			t.Errorf("%s: the connect took %v, want a lost SYN and a delay", engine, took)
		}
		if took := connects(t); took < 95*time.Millisecond || took > 990*time.Millisecond {
			t.Errorf("%s: without the rule a connect takes %v, want the delay", engine, took)
		}
		a.must("clear", slow)
	}
}

// TestAgentIsKilledUnderARule: it takes its rules with it, and leaves no device.
func TestAgentIsKilledUnderARule(t *testing.T) {
	a := start(t)
	a.must("lab", "up", "pg")
	devices := func() string { return in(t, "netem-pg-wire", "ip", "-br", "link").stdout }
	wire := func() string {
		return devices() + in(t, "netem-pg-wire", "tc", "filter", "show", "dev", "server", "egress").stdout
	}
	links, before := devices(), wire()
	a.must("drop", "syn", "--target", "pg")
	a.must("hold", "synack", "--for", "30s", "--target", "pg", "--direction", "from")
	if reaches(t) {
		t.Fatal("without any SYN a connection came about")
	}
	a.kill()
	time.Sleep(100 * time.Millisecond)
	if !reaches(t) {
		t.Error("100 ms after SIGKILL the flow is still cut")
	}
	if diff := cmp.Diff(links, devices()); diff != "" {
		t.Errorf("left on the wire (-before +after):\n%s", diff)
	}
	a.run()
	if diff := cmp.Diff(before, wire()); diff != "" { // a filter on clsact, before tcx, stays open until now
		t.Errorf("left on the wire by the next agent (-before +after):\n%s", diff)
	}
	if list := data[faultList](t, a.must("list", "-o", "json"), "faults"); len(list.Faults) != 0 {
		t.Errorf("the next agent has %+v", list)
	}
}

// TestFlags: of one flow, the packets with certain TCP flags are impaired and the others
// are not: no new connection comes about, and the old one goes on.
func TestFlags(t *testing.T) {
	a := start(t)
	for _, engine := range engines() {
		t.Run(engine, func(t *testing.T) {
			c := lay(t)
			server := netip.AddrPortFrom(thereFour, 7)
			var l net.Listener
			if err := namespaces.Do(t.Context(), c.there, func() (err error) {
				l, err = net.Listen("tcp", server.String())
				return err
			}); err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go echo(l)
			dial := func(limit time.Duration) (conn net.Conn, err error) {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				err = namespaces.Do(ctx, c.here, func() error {
					conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", server.String())
					return err
				})
				return conn, err
			}
			old, err := dial(20 * time.Second)
			if err != nil {
				t.Fatal(err)
			}
			defer old.Close()
			a := *a
			a.t = t
			a.must("partition", "--dev", "v0", "--netns", c.here, "--tcp-flags", "syn,!ack", "--engine", engine)
			if conn, err := dial(500 * time.Millisecond); err == nil {
				_ = conn.Close()
				t.Error("a connection came about without a SYN")
			}
			for range 3 {
				_ = old.SetDeadline(time.Now().Add(20 * time.Second))
				if _, err := old.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := old.Read(make([]byte, 1)); err != nil {
					t.Fatalf("the old connection: %v", err)
				}
			}
			a.must("clear", "--all")
			conn, err := dial(20 * time.Second)
			if err != nil {
				t.Fatalf("after clear: %v", err)
			}
			_ = conn.Close()
		})
	}
}

// echo answers each connection with what it says.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			buf := make([]byte, 64)
			for {
				n, err := conn.Read(buf)
				if err != nil {
					return
				}
				if _, err := conn.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}
