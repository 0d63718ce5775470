package netemtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"netemd/internal/lab"
	"netemd/internal/testenv"
	"netemd/namespaces"
)

// both is a server with an address of each family, and a client of it.
func both(t *testing.T, name string) (client, server *Node) {
	t.Helper()
	testenv.Root(t)
	n := &Network{what: "both", name: "both", failed: func(err error) { t.Fatal(err) }}
	for i, node := range []string{"client", "server"} {
		ns := fmt.Sprintf("nt-netemtest-%d-%s-%s", os.Getpid(), name, node)
		if err := namespaces.Create(ns); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(ns); err != nil {
				t.Error(err)
			}
		})
		n.info.Nodes = append(n.info.Nodes, lab.NodeInfo{Name: node, Namespace: ns, Addresses: []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("fd78::%d/64", i+1)), netip.MustParsePrefix(fmt.Sprintf("10.78.0.%d/24", i+1)),
		}})
	}
	ends := [2]namespaces.VethEnd{}
	for i, o := range n.info.Nodes {
		ends[i] = namespaces.VethEnd{Namespace: o.Namespace, Name: "eth0", Addresses: o.Addresses}
	}
	if err := namespaces.CreateVeth(ends[0], ends[1]); err != nil {
		t.Fatal(err)
	}
	client, server = n.Node("client"), n.Node("server")
	// The kernel lets packets pass when it has noticed the carrier.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := client.DialContext(ctx, "tcp6", "server:9")
		_, err4 := client.DialContext(ctx, "tcp4", "server:9")
		cancel()
		if refused(err) && refused(err4) {
			return client, server
		}
		if time.Now().After(end) {
			t.Fatalf("the pair does not come up: %v, %v", err, err4)
		}
	}
}

func refused(err error) bool {
	return err != nil && strings.Contains(err.Error(), "connection refused")
}

// echo serves connections with the address that it sees.
func echo(t *testing.T, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = fmt.Fprint(c, c.RemoteAddr())
			}()
		}
	}()
}

// Dials by names with addresses of both families come from the node, each of them, and no
// other goroutine is ever inside; the threads that it takes end.
func TestDialsAreInside(t *testing.T) {
	var clients []*Node
	own := map[string]bool{}
	for _, name := range []string{"a", "b"} {
		client, server := both(t, name)
		// What tells the two apart is the port: each has a server of its own there.
		l, err := server.Listen("tcp", ":7000")
		if err != nil {
			t.Fatal(err)
		}
		echo(t, l)
		clients = append(clients, client)
	}
	for _, p := range []string{"10.78.0.1", "fd78::1"} {
		own[p] = true
	}
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	before := threads(t)
	const dials = 200
	var wg sync.WaitGroup
	for i := range dials {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			c, err := clients[i%2].DialContext(ctx, "tcp", "server:7000")
			if err != nil {
				t.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			var b [64]byte
			n, _ := c.Read(b[:])
			if from, _, _ := net.SplitHostPort(string(b[:n])); !own[from] {
				t.Errorf("the server saw %q", b[:n])
			}
		})
	}
	wg.Wait()
	const few = 5
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		after, in := threads(t), threadsOutside(t, host)
		if in == 0 && after <= before+few {
			t.Logf("%d threads before %d dials, %d after", before, dials, after)
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d threads before %d dials, %d after, %d of them in a node", before, dials, after, in)
		}
	}
	inside := make(chan string, 2000)
	for range cap(inside) {
		wg.Go(func() {
			runtime.Gosched()
			if ns, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || ns != host {
				inside <- fmt.Sprint(ns, err)
			}
		})
	}
	wg.Wait()
	close(inside)
	if n := len(inside); n > 0 {
		t.Errorf("%d of %d goroutines are in a node: %s", n, cap(inside), <-inside)
	}
}

func threads(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// threadsOutside counts the threads that are in another namespace than the process.
func threadsOutside(t *testing.T, host string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if ns, err := os.Readlink("/proc/self/task/" + e.Name() + "/ns/net"); err == nil && ns != host {
			n++
		}
	}
	return n
}

func TestDialErrors(t *testing.T) {
	client, server := both(t, "errors")
	for _, tt := range []struct{ network, address, want string }{
		{"tcp", "server:9", "dial tcp [fd78::2]:9: connect: connection refused"},
		{"tcp4", "server:9", "dial tcp4 10.78.0.2:9: connect: connection refused"},
		{"tcp", "10.78.0.2", "missing port"},
		{"tcp6", "10.78.0.2:9", "no address of network tcp6"},
		{"sctp", "server:9", "unknown network sctp"},
		{"tcp", "192.0.2.1:9", "network is unreachable"},
	} {
		_, err := client.DialContext(t.Context(), tt.network, tt.address)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s %s: %v, want %q", tt.network, tt.address, err, tt.want)
		}
		if _, ok := errors.AsType[*net.OpError](err); !ok {
			t.Errorf("%s %s: %T", tt.network, tt.address, err)
		}
	}
	// An address that nobody has does not answer.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := client.DialContext(ctx, "tcp", "10.78.0.77:9")
	var timeout net.Error
	if !errors.Is(err, context.DeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("no answer: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := client.DialContext(gone, "tcp", "server:9"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := server.Listen("tcp", "192.0.2.1:0"); err == nil {
		t.Error("listens at an address that it does not have")
	}
}

func TestNode(t *testing.T) {
	client, server := both(t, "node")
	p, err := server.ListenPacket("udp", "server:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	c, err := client.DialContext(t.Context(), "udp", p.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	_ = p.SetDeadline(time.Now().Add(10 * time.Second))
	if _, from, err := p.ReadFrom(b[:]); err != nil || from.String() != c.LocalAddr().String() {
		t.Errorf("from %v: %v, want %v", from, err, c.LocalAddr())
	}

	// A command is inside, and its exit code, standard input and error are its own.
	cmd := client.Command("sh", "-c", "readlink /proc/self/ns/net; cat; exit 3")
	cmd.Stdin = strings.NewReader("in")
	out, err := cmd.Output()
	var inside string
	if doErr := client.Do(t.Context(), func() (err error) {
		inside, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); doErr != nil {
		t.Fatal(doErr)
	}
	if want := inside + "\nin"; string(out) != want || cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("command: %q, %v; want %q and 3", out, err, want)
	}
	if err := client.Command("no-such-program").Run(); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("unknown command: %v", err)
	}
}
