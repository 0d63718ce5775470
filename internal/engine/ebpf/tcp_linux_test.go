package ebpf

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/qdisc"
)

// connect opens a TCP connection from client to server.
func (l *lab) connect(t testing.TB, server string) (client, peer *net.TCPConn) {
	t.Helper()
	var ln *net.TCPListener
	l.in(t, l.server, func() (err error) {
		ln, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(server)})
		return err
	})
	defer ln.Close()
	l.in(t, l.client, func() (err error) {
		client, err = net.DialTCP("tcp", nil, ln.Addr().(*net.TCPAddr))
		return err
	})
	peer, err := ln.AcceptTCP()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		client.Close()
		peer.Close()
	})
	return client, peer
}

// A packet that the program drops is to the sender's stack one that was lost on the
// way: it is sent again when the timer says so, 200 ms later or more, and not at once
// as after a local drop.
func TestSenderDoesNotNotice(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		set(t, e, l.place, qdisc.Netem{}) // arm before anything is sent
		client, peer := l.connect(t, server4)
		set(t, e, l.place, qdisc.Netem{Loss: 100})
		start := time.Now()
		if n, err := client.Write([]byte("hello")); n != 5 || err != nil {
			t.Fatalf("write: %d, %v", n, err)
		}
		time.Sleep(50 * ms)
		if err := e.Clear(ctx, l.place); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 5)
		_ = peer.SetReadDeadline(time.Now().Add(slower(5 * time.Second)))
		if _, err := io.ReadFull(peer, b); err != nil || string(b) != "hello" {
			t.Fatalf("read %q, %v", b, err)
		}
		// RTO and tail loss probe of one segment: TCP_RTO_MIN (include/net/tcp.h).
		if took := time.Since(start); took < 200*ms {
			t.Errorf("it arrived after %s, want the retransmission timeout of 200ms or more", took)
		}
		raw, err := client.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.SOL_TCP, unix.TCP_INFO)
			if err != nil || info.Total_retrans == 0 {
				t.Errorf("tcp_info: %+v, %v", info, err)
			}
		})
	})
}

// checksumErrors sums InCsumErrors of a namespace's protocols.
func (l *lab) checksumErrors(t testing.TB, ns string) int {
	t.Helper()
	sum := 0
	l.in(t, ns, func() error {
		b, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		lines := strings.Split(string(b), "\n")
		for i := 0; i+1 < len(lines); i += 2 {
			names, values := strings.Fields(lines[i]), strings.Fields(lines[i+1])
			for k, name := range names {
				if name == "InCsumErrors" {
					n, err := strconv.Atoi(values[k])
					if err != nil {
						return err
					}
					sum += n
				}
			}
		}
		return nil
	})
	return sum
}

// TCP goes through the queue unharmed, in whole super-packets and cut into frames.
func TestTCPThroughTheQueue(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 256<<10) // 4 MB
	want := sha256.Sum256(data)
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for name, n := range map[string]qdisc.Netem{
			"whole":  {Delay: ms},
			"frames": {Delay: ms, Duplicate: 1, Seed: 1},
		} {
			for _, server := range []string{server4, server6} {
				t.Run(fmt.Sprintf("%s %s %s", hook, name, server), func(t *testing.T) {
					l, e := newLab(t), newEngine(t, Config{})
					p := l.place
					if hook == target.Ingress {
						p = l.at(t, l.server, target.Ingress)
					}
					set(t, e, p, n)
					client, peer := l.connect(t, server)
					go func() {
						_, _ = client.Write(data)
						_ = client.CloseWrite()
					}()
					h := sha256.New()
					_ = peer.SetReadDeadline(time.Now().Add(20 * time.Second))
					if k, err := io.Copy(h, peer); err != nil || k != int64(len(data)) {
						t.Fatalf("%d of %d bytes arrived, %v", k, len(data), err)
					}
					if !bytes.Equal(h.Sum(nil), want[:]) {
						t.Error("the data changed on the way")
					}
					if n := l.checksumErrors(t, l.server); n > 0 {
						t.Errorf("%d packets with a wrong checksum", n)
					}
					if c := counters(t, e, p); c.Seen == 0 || c.Overflow > 0 {
						t.Errorf("%+v", c)
					}
				})
			}
		}
	}
}
