package prober

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/evidence"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/probe"
)

const (
	device   = "v0"
	password = "it's a \\secret"
)

var (
	clientAddr = netip.MustParsePrefix("10.98.0.1/24")
	serverAddr = netip.MustParsePrefix("10.98.0.2/24")
	labs       atomic.Int32
)

// lab is two namespaces, a cable, and a PostgreSQL server in one of them.
type lab struct{ client, server string }

func newLab(t *testing.T) lab {
	t.Helper()
	testenv.Root(t)
	prefix := fmt.Sprintf("nt-pr-%d-%d-", os.Getpid(), labs.Add(1))
	l := lab{client: prefix + "c", server: prefix + "s"}
	for _, n := range []string{l.client, l.server} {
		if err := namespaces.Create(n); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(n); err != nil {
				t.Error(err)
			}
		})
	}
	macs := []net.HardwareAddr{{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: l.client, Name: device, Addresses: []netip.Prefix{clientAddr}, HardwareAddress: macs[0]},
		namespaces.VethEnd{Namespace: l.server, Name: device, Addresses: []netip.Prefix{serverAddr}, HardwareAddress: macs[1]})
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []string{l.client, l.server} {
		l.in(t, n, func() error {
			d, err := netlink.LinkByName(device)
			if err != nil {
				return err
			}
			if err := netlink.LinkSetUp(d); err != nil {
				return err
			}
			// one run's history may not bend the next one's timers
			if err := os.WriteFile("/proc/sys/net/ipv4/tcp_no_metrics_save", []byte("1"), 0); err != nil {
				return err
			}
			peer := []netip.Prefix{serverAddr, clientAddr}[i]
			return netlink.NeighSet(&netlink.Neigh{LinkIndex: d.Attrs().Index, IP: peer.Addr().AsSlice(), HardwareAddr: macs[1-i], State: netlink.NUD_PERMANENT})
		})
	}
	return l
}

func (l lab) in(t *testing.T, namespace string, f func() error) {
	t.Helper()
	if err := namespaces.Do(context.Background(), namespace, f); err != nil {
		t.Fatal(err)
	}
}

// postgres starts a cluster of its own in the server's namespace and returns its
// address and the order's log-in.
func (l lab) postgres(t *testing.T) Order {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	owner, err := user.Lookup("postgres")
	if len(found) == 0 || err != nil {
		t.Skip("needs PostgreSQL (Debian's package postgresql)")
	}
	slices.Sort(found)
	bin := filepath.Dir(found[len(found)-1])
	uid, _ := strconv.Atoi(owner.Uid)
	gid, _ := strconv.Atoi(owner.Gid)
	dir, err := os.MkdirTemp("", "nt-pr-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	secret := filepath.Join(dir, "password")
	if err := os.WriteFile(secret, []byte(password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{dir, secret} {
		if err := os.Chown(f, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	command := func(name string, args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := exec.Command(filepath.Join(bin, name), args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		return cmd, &out
	}
	data := filepath.Join(dir, "data")
	initdb, out := command("initdb", "-D", data, "-U", "prober", "-A", "scram-sha-256", "--pwfile", secret, "--no-sync", "-E", "UTF8", "--locale=C")
	if err := initdb.Run(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	hba := "host all all " + clientAddr.Masked().String() + " scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		t.Fatal(err)
	}
	server, out := command("postgres", "-D", data, "-F", "-c", "listen_addresses="+serverAddr.Addr().String(), "-c", "unix_socket_directories=")
	if err := namespaces.Start(l.server, server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGQUIT) // immediate shutdown
		_ = server.Wait()
		if t.Failed() {
			t.Logf("postgres:\n%s", out)
		}
	})
	o := Order{Address: netip.AddrPortFrom(serverAddr.Addr(), 5432), User: "prober", Password: password, Database: "postgres"}
	for until := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		o.Request = probe.Request{Count: 1}
		s, _, err := runAll(t.Context(), l.client, o, nil)
		if err == nil && s[0].Class == probe.OK {
			return o
		}
		if time.Now().After(until) {
			t.Fatalf("postgres does not answer: %+v, %v\n%s", s, err, out)
		}
	}
}

// lose loses a share of the IPv4 packets that leave a namespace, unseen by TCP.
func (l lab) lose(t *testing.T, namespace string, percent int64) {
	t.Helper()
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, 16, asm.Word), asm.JNE.Imm(asm.R2, 0x0008, "pass"), // ETH_P_IP as it lies in memory
		asm.FnGetPrandomU32.Call(), asm.LSh.Imm(asm.R0, 32), asm.RSh.Imm(asm.R0, 32),
		asm.LoadImm(asm.R1, percent<<32/100, asm.DWord), asm.JGE.Reg(asm.R0, asm.R1, "pass"),
		asm.Mov.Imm(asm.R1, 0x7ffffff0), asm.Mov.Imm(asm.R2, 0), asm.FnRedirect.Call(), asm.Return(),
		asm.Mov.Imm(asm.R0, -1).WithSymbol("pass"), asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l.in(t, namespace, func() error {
		d, err := netlink.LinkByName(device)
		if err != nil {
			return err
		}
		if err := netlink.QdiscAdd(&netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: d.Attrs().Index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}); err != nil {
			return err
		}
		return netlink.FilterAdd(&netlink.BpfFilter{Fd: p.FD(), Name: "lose", DirectAction: true, FilterAttrs: netlink.FilterAttrs{
			LinkIndex: d.Attrs().Index, Parent: netlink.HANDLE_MIN_EGRESS, Handle: 1, Priority: 1, Protocol: unix.ETH_P_ALL}})
	})
}

// TestMeasure probes a real PostgreSQL, whole and at 20 % loss.
func TestMeasure(t *testing.T) {
	l := newLab(t)
	o := l.postgres(t)
	c := Config{ClientNamespace: l.client, ServerNamespace: l.server, Order: o, Layer: "none"}
	c.Order.Request = probe.Request{Target: "pg", Count: 20, Concurrency: 2}
	var streamed []probe.Sample
	var last probe.Progress
	c.Sink = func(s []probe.Sample) { streamed = append(streamed, s...) }
	c.Report = func(p probe.Progress) { last = p }
	r, err := Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	probe.BySeq(streamed)
	if d := cmp.Diff(r.Samples, streamed, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
		t.Errorf("samples (-of the result +of the sink):\n%s", d)
	}
	if last.Done != 20 || last.Count != 20 || last.Failed != 0 || last.P50 == nil || *last.P50 != *r.Summary.P50 {
		t.Errorf("the last progress is %+v", last)
	}
	if l := r.Summary.Load; l == nil || l.Loop != "closed" || l.Started != 20 || l.Seed == 0 {
		t.Errorf("load %+v", l)
	}
	c.Sink, c.Report = nil, nil
	open := c
	open.Order.Request = probe.Request{Target: "pg", Duration: 3 * time.Second, Warmup: time.Second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}}}
	open.Keep = 10
	r, err = Measure(t.Context(), open)
	if s := r.Summary; err != nil || s.Count != 20 || s.Warmup != 10 || s.Load.Started != 30 || *s.Load.Asked != 10 || s.Load.LagMax == nil || len(r.Samples) != 0 {
		t.Errorf("open loop: %+v, %+v, %d samples, %v; want 10 calls of the warm-up and 20 more, none kept", s, s.Load, len(r.Samples), err)
	}
	r, err = Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s := r.Summary
	if s.Target != "pg" || s.Layer != "none" || s.Count != 20 || s.OK != 20 || len(r.Samples) != 20 || s.Evidence != probe.EvidenceTraced {
		t.Errorf("whole: %+v", s)
	}
	if e := s.Environment; e == nil || e.Kernel == "" || e.Client == nil || e.Server == nil || len(e.Connections) != 1 || e.Connections[0].Count != 20 || e.Connections[0].Congestion == "" {
		t.Errorf("whole: environment %+v, want both ends and 20 connections that are alike", e)
	}
	// a slow machine may acknowledge so late that a probe is sent for nothing
	if s.Retransmissions[probe.SYNRetransmit]+s.Retransmissions[probe.FastRetransmit] != 0 {
		t.Errorf("whole: retransmissions %v", s.Retransmissions)
	}

	l.lose(t, l.client, 20)
	var before evidence.Counters
	c.start = func(cfg evidence.Config) (*evidence.Collector, error) {
		col, err := evidence.Start(cfg)
		before = counters(t, l) // what the healthy run's closing sends again comes earlier
		return col, err
	}
	c.Layer = "packet"
	c.Order.Request = probe.Request{Target: "pg", Count: 90, Concurrency: 6, Timeout: 20 * time.Second}
	r, err = Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	counted := counters(t, l).Since(before)
	s = r.Summary
	t.Logf("%d/%d ok, p50 %v ms, p99 %v ms, causes %v, retransmissions %v", s.OK, s.Count, *s.P50, *s.P99, s.Causes, s.Retransmissions)
	// All that loss does is there: that none of 90 SYNs is lost has the probability
	// 0.8^90 < 1e-8, that none of 450 data segments is lost twice 0.96^450 < 1e-7.
	for _, cause := range []probe.Cause{probe.SYNRetransmit, probe.TLP, probe.RTO} {
		if s.Retransmissions[cause] == 0 {
			t.Errorf("no %s among %v", cause, s.Retransmissions)
		}
	}
	// A call that a busy machine made slow has no cause of ours, but one that lost
	// something has, unless the machine was slower still.
	slow, unexplained := 0, 0
	traced := map[probe.Cause]int{}
	for _, x := range r.Samples {
		if x.Cause != "" {
			slow++
		}
		if x.Cause == probe.Unknown && len(x.Events) > 0 && x.Events[0].TimeNS < x.EndNS {
			unexplained++
			t.Logf("unknown: %+v", x)
		}
		for _, e := range x.Events {
			traced[e.Cause]++
		}
	}
	if slow == 0 || unexplained > slow/20 {
		t.Errorf("%d of %d slow calls had retransmissions and no cause, want at most 5 %%", unexplained, slow)
	}
	// The namespaces carry nothing but these calls. What the last connections' closing
	// sends again comes after the collection, and that is hardly ever a SYN.
	total := counted.Causes()
	for _, cause := range []probe.Cause{probe.SYNRetransmit, probe.TLP, probe.RTO, probe.FastRetransmit, probe.Unknown} {
		late := 4 * c.Order.Request.Concurrency
		if cause == probe.SYNRetransmit {
			late = 2
		}
		if d := total[cause] - traced[cause]; d < 0 || d > late {
			t.Errorf("%s: %d events, and the namespaces' counters say %d", cause, traced[cause], total[cause])
		}
	}

	// The same where nothing can be traced: sockets and counters stand in.
	c.start = func(evidence.Config) (*evidence.Collector, error) { return nil, errors.ErrUnsupported }
	c.Order.Request.Count = 60
	r, err = Measure(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	s = r.Summary
	t.Logf("not traced: causes %v, retransmissions %v", s.Causes, s.Retransmissions)
	if want := probe.EvidenceCounters + ": unsupported operation"; s.Evidence != want {
		t.Errorf("evidence %q, want %q", s.Evidence, want)
	}
	if s.Causes[probe.TLP] > 0 || s.Causes[probe.FastRetransmit] > 0 {
		t.Errorf("causes %v, want none that a socket cannot tell", s.Causes)
	}
	if s.Causes[probe.SYNRetransmit] == 0 || s.Retransmissions[probe.TLP] == 0 || s.Retransmissions[probe.SYNRetransmit] == 0 {
		t.Errorf("causes %v, retransmissions %v; want those of SYNs, and TLPs among the latter", s.Causes, s.Retransmissions)
	}
}

func counters(t *testing.T, l lab) evidence.Counters {
	t.Helper()
	c, err := Config{ClientNamespace: l.client, ServerNamespace: l.server}.counters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMeasureUnknownNamespace(t *testing.T) {
	testenv.Root(t)
	_, err := Measure(t.Context(), Config{ClientNamespace: "nt-pr-nowhere"})
	if err == nil {
		t.Fatal("no error")
	}
}
