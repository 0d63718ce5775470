package offload

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"netemd/namespaces"
)

// frame is the longest packet of a wire with an MTU of 1500 bytes: with the Ethernet
// header.
const frame = 1514

// TestPacketsAsOnTheWire sends a stream over a veth pair and looks at what its device
// sends, and at what a program or queueing discipline of that device gets: packets of
// up to 64 KB at first, none above 1514 bytes with offload off.
func TestPacketsAsOnTheWire(t *testing.T) {
	a, b := pair(t)
	k := keeper(t)
	check := func(what string, off bool, mean uint64) {
		t.Logf("%s: mean %d bytes", what, mean)
		if off != (mean <= frame) {
			t.Errorf("%s: mean %d bytes", what, mean)
		}
	}
	check("at first", false, transfer(t, a, b))
	off(t, k, "kqv1", read(t, k, a, "v0", false))
	check("with offload off", true, transfer(t, a, b))
	restore(t, k, "kqv1")
	check("restored", false, transfer(t, a, b))
	t.Run("at egress", func(t *testing.T) {
		count := watchEgress(t, a, "v0")
		transfer(t, a, b)
		if n := count(); n == 0 {
			t.Error("no super-packet came to egress: the test shows nothing")
		}
		off(t, k, "kqv1", read(t, k, a, "v0", false))
		before := count()
		transfer(t, a, b)
		if n := count() - before; n != 0 {
			t.Errorf("%d super-packets came to egress with offload off", n)
		}
		restore(t, k, "kqv1")
	})
}

// transfer sends 16 MB from a to b over a new connection and returns the mean size of
// the packets that v0 sent, in bytes.
func transfer(t *testing.T, a, b string) uint64 {
	t.Helper()
	const bytes = 16 << 20
	var l net.Listener
	err := namespaces.Do(t.Context(), b, func() (err error) {
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "10.79.0.2:0")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	received := make(chan int64, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			received <- -1
			return
		}
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		received <- n
	}()
	n, err := openNamespace(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	sent := func() (bytes, packets uint64) {
		l, err := n.linkByName("v0")
		if err != nil {
			t.Fatal(err)
		}
		return l.Attrs().Statistics.TxBytes, l.Attrs().Statistics.TxPackets
	}
	bytes0, packets0 := sent()
	err = namespaces.Do(t.Context(), a, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, bytes))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := <-received; got != bytes {
		t.Fatalf("%d bytes arrived of %d", got, bytes)
	}
	bytes1, packets1 := sent()
	return (bytes1 - bytes0) / (packets1 - packets0)
}

// watchEgress counts the packets that come to the device's egress with more than one
// frame in them; the returned function says how many so far. Without tcx (before
// Linux 6.6) the test goes without that count.
func watchEgress(t *testing.T, namespace, device string) func() uint64 {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	const next = -1 // TCX_NEXT of linux/bpf.h
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.SchedCLS, License: "GPL", Instructions: asm.Instructions{
		asm.LoadMem(asm.R6, asm.R1, 0, asm.Word), // __sk_buff.len
		asm.JLE.Imm(asm.R6, frame, "pass"),
		asm.StoreImm(asm.R10, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, m.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "pass"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, next).WithSymbol("pass"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	n, err := openNamespace(t.Context(), namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer n.close()
	l, err := n.linkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	err = namespaces.Do(t.Context(), namespace, func() error {
		attached, err := link.AttachTCX(link.TCXOptions{Interface: l.Attrs().Index, Program: program, Attach: ebpf.AttachTCXEgress})
		if err == nil {
			t.Cleanup(func() { attached.Close() })
		}
		return err
	})
	if errors.Is(err, ebpf.ErrNotSupported) {
		t.Skipf("needs tcx: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() uint64 {
		var count uint64
		if err := m.Lookup(uint32(0), &count); err != nil {
			t.Fatal(err)
		}
		return count
	}
}
