package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/namespaces"
)

// The two ends of the link of TestPlanCanBeTyped.
var (
	nearAddresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")}
	farAddresses  = []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8::2/64")}
)

// TestPlanCanBeTyped types what dry runs show, and looks which packets are hurt.
func TestPlanCanBeTyped(t *testing.T) {
	testenv.Netem(t)
	l := newLink(t)
	for _, c := range []struct {
		line string
		// lost are the packets that must not arrive: "4:9001" is IPv4 to port 9001.
		lost string
	}{
		{"partition --dev near --netns NEAR", "4:9001 4:9002 6:9001 6:9002"},
		{"partition --dev near --netns NEAR --port 9001", "4:9001 6:9001"},
		{"partition --dev near --netns NEAR --exclude-port 9002", "4:9001 6:9001"},
		{"partition --dev near --netns NEAR --dst 192.0.2.2 --exclude-port 9002", "4:9001"},
		{"partition --dev near --netns NEAR --protocol udp --dst 2001:db8::/32 --port 9000-9001,9005", "6:9001"},
		{"partition --dev far --netns FAR --direction ingress --src-port 9002 --dst 192.0.2.0/24", "4:9002"},
		{"partition --dev near --netns NEAR --protocol tcp", ""},
		{"partition --dev near --netns NEAR --dst 192.0.2.2,2001:db8::2 --exclude-dst 2001:db8::2", "4:9001 4:9002"},
	} {
		t.Run(c.line, func(t *testing.T) {
			l.typePlan(t, strings.NewReplacer("NEAR", l.near, "FAR", l.far).Replace(c.line))
			// Without ARP and neighbour discovery nothing would arrive.
			l.ip(t, l.near, "neigh", "flush", "dev", "near")
			var lost []string
			for i, got := range l.send(t) {
				switch got {
				case 0:
					lost = append(lost, listeners[i])
				case burst:
				default:
					t.Errorf("%s: %d of %d packets arrived", listeners[i], got, burst)
				}
			}
			if got := strings.Join(lost, " "); got != c.lost {
				t.Errorf("lost %q, want %q", got, c.lost)
			}
		})
	}
}

// listeners are in far: the family and the port.
var listeners = []string{"4:9001", "4:9002", "6:9001", "6:9002"}

// burst is how many packets are sent to each port.
const burst = 10

// link is two namespaces with a device each, and counting listeners in far.
type link struct {
	near, far string
	arrived   map[string]*atomic.Int64
}

func newLink(t *testing.T) *link {
	t.Helper()
	l := &link{arrived: map[string]*atomic.Int64{}}
	for name, p := range map[string]*string{"near": &l.near, "far": &l.far} {
		*p = fmt.Sprintf("nt-cli-%d-%s", os.Getpid(), name)
		if err := namespaces.Create(*p); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := namespaces.Delete(*p); err != nil {
				t.Error(err)
			}
		})
	}
	err := namespaces.CreateVeth(
		namespaces.VethEnd{Namespace: l.near, Name: "near", Addresses: nearAddresses}, namespaces.VethEnd{Namespace: l.far, Name: "far", Addresses: farAddresses})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range listeners {
		l.listen(t, at)
	}
	return l
}

func (l *link) listen(t *testing.T, at string) {
	t.Helper()
	family, port, _ := strings.Cut(at, ":")
	var conn net.PacketConn
	err := namespaces.Do(t.Context(), l.far, func() (err error) {
		conn, err = net.ListenPacket("udp"+family, ":"+port)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	n := &atomic.Int64{}
	l.arrived[at] = n
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b := make([]byte, 16); ; n.Add(1) {
			if _, _, err := conn.ReadFrom(b); err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
}

// send sends a burst to each of the listeners and returns how many packets arrived there.
func (l *link) send(t *testing.T) []int {
	t.Helper()
	before := l.counts()
	for _, to := range listeners {
		family, port, _ := strings.Cut(to, ":")
		host := farAddresses[0].Addr().String()
		if family == "6" {
			host = farAddresses[1].Addr().String()
		}
		var conn net.Conn
		err := namespaces.Do(t.Context(), l.near, func() (err error) {
			conn, err = net.Dial("udp"+family, net.JoinHostPort(host, port))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		for range burst {
			if _, err := conn.Write([]byte("probe")); err != nil {
				t.Fatal(err)
			}
		}
	}
	// What arrives does so at once, but for the first neighbour's answer.
	const patience, quiet = 3 * time.Second, 500 * time.Millisecond
	arrived := make([]int, len(listeners))
	for start := time.Now(); time.Since(start) < patience; time.Sleep(10 * time.Millisecond) {
		under := false // part of a burst is there, and the rest on its way
		whole := true
		for i, n := range l.counts() {
			arrived[i] = n - before[i]
			under = under || arrived[i] > 0 && arrived[i] < burst
			whole = whole && arrived[i] == burst
		}
		if whole || !under && time.Since(start) > quiet {
			break
		}
	}
	return arrived
}

// counts are how many packets each listener has had.
func (l *link) counts() []int {
	counts := make([]int, len(listeners))
	for i, to := range listeners {
		counts[i] = int(l.arrived[to].Load())
	}
	return counts
}

// typePlan runs the commands of a dry run, and takes away what they made in the end.
func (l *link) typePlan(t *testing.T, line string) {
	t.Helper()
	w := world{agent: newFakeAgent()}
	if code := w.run(t.Context(), append(shellWords(line), "--dry-run", "-o", "json", "--engine", "netem")...); code != exitDone {
		t.Fatalf("%s: exit code %d: %s", line, code, w.stderr.String())
	}
	var doc struct{ Data planView }
	if err := json.Unmarshal([]byte(w.stdout.String()), &doc); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range doc.Data.Operations {
			clean := context.WithoutCancel(t.Context())
			if strings.HasSuffix(o.TC, " clsact") {
				l.run(clean, t, "tc", append([]string{"-n", o.Netns}, strings.Fields(strings.Replace(o.TC, "tc qdisc add", "qdisc del", 1))...)...)
			}
		}
		for _, o := range doc.Data.Operations {
			for _, command := range o.Before {
				if strings.HasPrefix(command, "ip link add ") {
					l.run(context.WithoutCancel(t.Context()), t, "ip", "-n", o.Netns, "link", "del", strings.Fields(command)[4])
				}
			}
		}
	})
	for _, o := range doc.Data.Operations {
		for _, command := range append(o.Before, o.TC) {
			words := strings.Fields(command)
			t.Logf("in %s: %s", o.Netns, command)
			l.run(t.Context(), t, words[0], append([]string{"-n", o.Netns}, words[1:]...)...)
		}
	}
}

func (l *link) ip(t *testing.T, namespace string, args ...string) {
	t.Helper()
	l.run(t.Context(), t, "ip", append([]string{"-n", namespace}, args...)...)
}

func (l *link) run(ctx context.Context, t *testing.T, name string, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
