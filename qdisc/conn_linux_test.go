package qdisc_test

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/socket"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"netemd/internal/testenv"
	"netemd/qdisc"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// bench is a namespace with a veth pair, and a connection to it.
type bench struct {
	*qdisc.Conn
	links  *netlink.Handle
	device qdisc.Device
	netns  int
}

func newBench(t *testing.T) *bench {
	t.Helper()
	fd := testenv.Namespace(t)
	links, err := netlink.NewHandleAt(netns.NsHandle(fd))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(links.Close)
	if err := links.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "v0"}, PeerName: "v1"}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"v0", "v1"} {
		l, err := links.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := links.LinkSetUp(l); err != nil {
			t.Fatal(err)
		}
	}
	v0, err := links.LinkByName("v0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := qdisc.Dial(qdisc.Config{NetNS: fd, Namespace: "web"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &bench{c, links, qdisc.Device{Name: "v0", Index: v0.Attrs().Index}, fd}
}

func TestRootOfOthers(t *testing.T) {
	b := newBench(t)
	s, err := b.Root(b.device)
	if err != nil || s.Handle != 0 || s.Ours() || s.Foreign() {
		t.Errorf("untouched device: %v %+v, %v", s, s, err)
	}
	tbf := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: b.device.Index, Parent: netlink.HANDLE_ROOT, Handle: 0x77_0000},
		Rate:       1e6, Buffer: 1e5, Limit: 1e6,
	}
	if err := b.links.QdiscAdd(tbf); err != nil {
		t.Fatal(err)
	}
	s, err = b.Root(b.device)
	if err != nil || s.String() != "tbf 77:" || s.Ours() || !s.Foreign() {
		t.Errorf("foreign root: %v, %v", s, err)
	}
	// None of ours, so none of our calls may touch it.
	for name, err := range map[string]error{
		"add":    b.AddRoot(b.device, qdisc.Netem{}),
		"change": b.ChangeRoot(b.device, qdisc.State{}, qdisc.Netem{}),
		"delete": b.DeleteRoot(b.device),
	} {
		var op *qdisc.OpError
		if !errors.As(err, &op) || !strings.HasPrefix(err.Error(), "qdisc "+name+": v0 in netns web: ") || op.Message == "" {
			t.Errorf("%s on a foreign root: %v", name, err)
		}
		if name == "add" && !errors.Is(err, fs.ErrExist) {
			t.Errorf("add on a foreign root: %v is no fs.ErrExist", err)
		}
	}
	if again, err := b.Root(b.device); err != nil || again.String() != "tbf 77:" {
		t.Errorf("afterwards: %v, %v", again, err)
	}
}

func TestDeviceGone(t *testing.T) {
	b := newBench(t)
	gone := qdisc.Device{Name: "v9", Index: 999}
	_, err := b.Root(gone)
	for name, err := range map[string]error{
		"read":   err,
		"add":    b.AddRoot(gone, qdisc.Netem{}),
		"change": b.ChangeRoot(gone, qdisc.State{}, qdisc.Netem{}),
		"delete": b.DeleteRoot(gone),
	} {
		if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s on a device that is gone: %v", name, err)
		}
	}
}

// A device that was never up shows no qdisc.
func TestRootOfDownDevice(t *testing.T) {
	b := newBench(t)
	dummy := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "down"}, PeerName: "down1"}
	if err := b.links.LinkAdd(dummy); err != nil {
		t.Fatal(err)
	}
	l, err := b.links.LinkByName("down")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := b.Root(qdisc.Device{Name: "down", Index: l.Attrs().Index}); err != nil || s.Handle != 0 || s.Foreign() {
		t.Errorf("%v, %v", s, err)
	}
}

// On a kernel without sch_netem the kernel's own word for it comes through.
func TestKindUnknown(t *testing.T) {
	b := newBench(t)
	err := b.AddRoot(b.device, qdisc.Netem{})
	if err == nil {
		t.Skip("this kernel has sch_netem")
	}
	var op *qdisc.OpError
	if !errors.As(err, &op) || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, syscall.ENOENT) || errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%v (%T)", err, err)
	}
	if want := `qdisc add: v0 in netns web: no such file or directory (kernel: "Specified qdisc kind is unknown")`; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if !strings.Contains(op.Hint(), "ebpf engine") {
		t.Errorf("hint %q", op.Hint())
	}
}

// Each state is set over the one before, with whatever that left in the kernel.
func TestChangeIsWhole(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	if err := b.AddRoot(b.device, qdisc.Netem{}); err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	for _, n := range []qdisc.Netem{
		{},
		{Loss: 20, LossCorrelation: 25},
		{Loss: .01},
		{Delay: 100 * ms, Jitter: 20 * ms, DelayCorrelation: 25, Distribution: qdisc.Normal},
		{Delay: 20 * time.Microsecond, Jitter: 7},
		{Delay: qdisc.MaxDelay, Jitter: qdisc.MaxJitter},
		{Delay: 10 * ms, Reorder: 25, ReorderCorrelation: 50, Gap: 5},
		{Duplicate: 5, DuplicateCorrelation: 1, Limit: 10},
		{Corrupt: .1, CorruptCorrelation: 5},
		{Loss: 100},
		{},
	} {
		from, err := b.Root(b.device)
		if err != nil || !from.Ours() {
			t.Fatalf("%v, %v", from, err)
		}
		if err := b.ChangeRoot(b.device, from, n); err != nil {
			t.Fatalf("%v: %v", n, err)
		}
		s, err := b.Root(b.device)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string(nil), n.Differences(s.Netem)); diff != "" || s.Other != nil {
			t.Errorf("%v: in force is %v, other %v: differences (-want +got):\n%s", n, s.Netem, s.Other, diff)
		}
	}
	if err := b.AddRoot(b.device, qdisc.Netem{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("add on a root of ours: %v", err)
	}
	for _, arguments := range fixtures(t) {
		if err := b.ReplaceRoot(b.device, parsed(t, arguments)); err != nil {
			t.Errorf("replace by %s: %v", arguments, err)
		}
		if err := b.ReplaceRoot(b.device, qdisc.Netem{Loss: 5}); err != nil {
			t.Error(err)
		}
		b.inForce(t, "replaced "+arguments, qdisc.Netem{Loss: 5})
	}
	if err := b.DeleteRoot(b.device); err != nil {
		t.Error(err)
	}
	if s, err := b.Root(b.device); err != nil || s.Handle != 0 {
		t.Errorf("after delete: %v, %v", s, err)
	}
}

// fixtures are the arguments of testdata/tc-newer.txt, for every option and with values
// at the edges of every field.
func fixtures(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("testdata/tc-newer.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for line := range strings.Lines(string(b)) {
		if arguments, _, ok := strings.Cut(line, " = "); ok {
			all = append(all, arguments)
		}
	}
	if len(all) < 50 {
		t.Fatalf("%d fixtures", len(all))
	}
	return all
}

// Every option is in force as it was asked for, on a new root and changed from every
// other to the next, forwards and backwards.
func TestEveryOptionReadsBack(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	all := fixtures(t)
	backwards := slices.Clone(all)
	slices.Reverse(backwards)
	for _, arguments := range all {
		n := parsed(t, arguments)
		if err := b.AddRoot(b.device, n); err != nil {
			t.Errorf("add %s: %v", arguments, err)
			continue
		}
		b.inForce(t, "added", n)
		if err := b.DeleteRoot(b.device); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.AddRoot(b.device, qdisc.Netem{}); err != nil {
		t.Fatal(err)
	}
	var before qdisc.Netem
	for _, arguments := range slices.Concat(all, backwards) {
		n := parsed(t, arguments)
		from, err := b.Root(b.device)
		if err != nil {
			t.Fatal(err)
		}
		from.Netem.Distribution = before.Distribution
		if err := b.ChangeRoot(b.device, from, n); err != nil {
			t.Errorf("change to %s: %v", arguments, err)
			continue
		}
		b.inForce(t, "changed from "+before.String(), n)
		before = n
	}
}

func parsed(t *testing.T, arguments string) qdisc.Netem {
	t.Helper()
	n, err := qdisc.ParseTC(arguments)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// inForce compares what the device has with n. Linux before 6.6 takes no seed and dumps
// none: without one in the dump, only the seed may differ.
func (b *bench) inForce(t *testing.T, how string, n qdisc.Netem) {
	t.Helper()
	s, err := b.Root(b.device)
	if err != nil || !s.Ours() || s.Other != nil {
		t.Errorf("%s, %s: %v, other %v, %v", how, n, s, s.Other, err)
		return
	}
	differ := n.Differences(s.Netem)
	if s.Netem.Seed == 0 {
		differ = slices.DeleteFunc(differ, func(f string) bool { return f == "seed" })
	}
	if len(differ) > 0 {
		t.Errorf("%s, %s: in force is %s, differences %q", how, n, s.Netem, differ)
	}
}

// A slot from min to max holds packets after one with a distribution, too, whose table
// stays in the kernel: without its own, each next slot would be now.
func TestSlotAfterDistribution(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	if err := b.AddRoot(b.device, parsed(t, "slot distribution normal 1ms 1us")); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range []string{"delay 1ms", "slot 300ms 600ms packets 1"} {
		from, err := b.Root(b.device)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.ChangeRoot(b.device, from, parsed(t, arguments)); err != nil {
			t.Fatal(err)
		}
	}
	const packets = 6
	start := time.Now()
	b.send(t, packets)
	for {
		s, err := b.Root(b.device)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); s.Stats.Queued == 0 {
			// The first leaves at once; between the others are 300 ms at least.
			if least := (packets - 2) * 300 * time.Millisecond; took < least {
				t.Errorf("%d packets left within %v, want %v at least", packets, took, least)
			}
			return
		} else if took > 30*time.Second {
			t.Fatalf("%d packets are still queued", s.Stats.Queued)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// send sends broadcasts from the device.
func (b *bench) send(t *testing.T, packets int) {
	t.Helper()
	c, err := socket.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0, "packet", &socket.Config{NetNS: b.netns})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	frame := make([]byte, 60)
	copy(frame, "\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x01\x88\xb5") // the ethertype of local experiments
	to := &unix.SockaddrLinklayer{Ifindex: b.device.Index, Halen: 6}
	for range packets {
		if err := c.Sendto(t.Context(), frame, 0, to); err != nil {
			t.Fatal(err)
		}
	}
}

// What somebody else adds to a root of ours is seen, and a change ends it.
func TestChangeEndsOthers(t *testing.T) {
	testenv.Netem(t)
	b := newBench(t)
	if err := b.AddRoot(b.device, qdisc.Netem{}); err != nil {
		t.Fatal(err)
	}
	rated := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: b.device.Index, Parent: netlink.HANDLE_ROOT, Handle: qdisc.Handle},
		netlink.NetemQdiscAttrs{Rate64: 1e6})
	if err := b.links.QdiscChange(rated); err != nil {
		t.Fatal(err)
	}
	from, err := b.Root(b.device)
	if err != nil || from.Netem.Rate != 1e6 || from.Other != nil {
		t.Fatalf("%v, other %v, %v, want the rate of somebody else", from.Netem, from.Other, err)
	}
	if err := b.ChangeRoot(b.device, from, qdisc.Netem{}); err != nil {
		t.Fatal(err)
	}
	if s, err := b.Root(b.device); err != nil || s.Netem.Rate != 0 || s.Other != nil {
		t.Errorf("%v, other %v, %v", s.Netem, s.Other, err)
	}
}

func BenchmarkDialAndRead(b *testing.B) {
	fd := testenv.Namespace(b)
	for b.Loop() {
		c, err := qdisc.Dial(qdisc.Config{NetNS: fd})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Root(qdisc.Device{Name: "lo", Index: 1}); err != nil {
			b.Fatal(err)
		}
		_ = c.Close()
	}
}
