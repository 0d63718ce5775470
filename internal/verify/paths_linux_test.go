package verify

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

func flowTo(protocol uint8, prefix string, ports target.Ports) target.Match {
	f := target.Flow{Protocol: protocol, DestinationPorts: ports}
	if prefix != "" {
		f.Destination = netip.MustParsePrefix(prefix)
	}
	return target.Match{Include: []target.Flow{f}}
}

// Packets find their way to a place of any kind, and belong to its flow.
func TestPaths(t *testing.T) {
	b, e := newBench(t), newEBPF(t)
	six := service(serverSix)
	udp := flowTo(unix.IPPROTO_UDP, "203.0.113.0/24", target.Ports{First: 8000, Last: 8010})
	udp.Exclude = []target.Flow{
		{DestinationPorts: target.Ports{First: 8000, Last: 8004}},
		{Destination: netip.MustParsePrefix("203.0.113.1/32")},
	}
	flagged := func(set, unset uint8) target.Match {
		f := flowTo(unix.IPPROTO_TCP, "", target.Port(servicePort))
		f.Include[0].FlagsSet, f.Include[0].FlagsClear = set, unset
		return f
	}
	const syn, rst, ack = 2, 4, 16
	for name, tt := range map[string]struct {
		at    target.Place
		match target.Match
		ends  *Ends
		words string
	}{
		"to":           {b.to, b.to.Match, b.toServer(), "tcp from 10.98.0.1 port 61713 to 10.98.0.2 port 5432"},
		"from":         {b.from, b.from.Match, b.fromServer(), "tcp from 10.98.0.2 port 5432 to 10.98.0.1 port 61713"},
		"to, IPv6":     {b.to, six, b.toServer(), "tcp from fd00:98::1 port 61713 to fd00:98::2 port 5432"},
		"from, IPv6":   {b.from, six.Reverse(), b.fromServer(), "tcp from fd00:98::2 port 5432 to fd00:98::1 port 61713"},
		"whole wire":   {b.to, target.Match{}, b.toServer(), "tcp from 10.98.0.1 port 61713 to 10.98.0.2 port 61713"},
		"sctp":         {b.to, flowTo(unix.IPPROTO_SCTP, "", target.Ports{}), b.toServer(), "sctp from 192.0.2.1 port 61713 to 192.0.2.2 port 61713"},
		"syn":          {b.to, flagged(syn, ack), b.toServer(), "tcp with syn from 10.98.0.1 port 61713 to 10.98.0.2 port 5432"},
		"ingress, rst": {b.at(t, b.server, "eth0", target.Ingress), flagged(rst, 0), nil, "tcp with rst,ack from 192.0.2.1"},
		"veth":         {b.at(t, b.client, "eth0", target.Egress), udp, nil, "udp from 10.98.0.1 port 61713 to 203.0.113.2 port 8005"},
		"veth, any":    {b.at(t, b.client, "eth0", target.Egress), target.Match{}, nil, "tcp from 10.98.0.1 port 61713 to 192.0.2.2 port 61713"},
		"icmp":         {b.at(t, b.wire, "client", target.Egress), flowTo(unix.IPPROTO_ICMP, "", target.Ports{}), nil, "icmp from 192.0.2.1 to 192.0.2.2"},
		"loopback":     {b.at(t, b.server, "lo", target.Egress), flowTo(0, "127.0.0.0/8", target.Port(servicePort)), nil, "to 127.0.0.1 port 5432"},
		"loopback, 6":  {b.at(t, b.server, "lo", target.Egress), flowTo(unix.IPPROTO_UDP, "::1/128", target.Ports{}), nil, "to ::1 port 61713"},
		"ingress":      {b.at(t, b.server, "eth0", target.Ingress), b.to.Match, nil, "tcp from 192.0.2.1 port 61713 to 10.98.0.2 port 5432"},
		"ingress, any": {b.at(t, b.client, "eth0", target.Ingress), target.Match{}, nil, "to 10.98.0.1 port 61713"},
	} {
		t.Run(name, func(t *testing.T) {
			p := tt.at
			p.Match = tt.match
			n := qdisc.Netem{Corrupt: 20, Loss: 20}
			if name == "loopback" {
				n.Corrupt = 0 // the ebpf engine only drops IPv4 there
			}
			r := verifyOn(t, e, p, tt.ends, n, Options{Packets: 1000, Rate: 4000}, Pass)
			if got := r.Places[0].Packet; !strings.Contains(got, tt.words) {
				t.Errorf("packets are %s, want %s", got, tt.words)
			}
			if err := e.Clear(t.Context(), p); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Where packets would leave the host, or nothing can be sent, it is said.
func TestImpossiblePaths(t *testing.T) {
	b := newBench(t)
	b.links(t, b.server, func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = "br0"
		bridge := &netlink.Bridge{LinkAttrs: attrs}
		attrs.Name = "br1"
		return errors.Join(h.LinkAdd(bridge), h.LinkSetUp(bridge), h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}))
	})
	match := func(p target.Place, m target.Match) target.Place {
		p.Match = m
		return p
	}
	none := target.Match{Include: []target.Flow{{Protocol: unix.IPPROTO_ICMP, DestinationPorts: target.Port(1)}}}
	for name, tt := range map[string]struct {
		p      target.Place
		reason string
	}{
		"bridge":         {b.at(t, b.server, "br0", target.Egress), "packets that leave br0 (bridge) may leave this host"},
		"bridge ingress": {b.at(t, b.server, "br0", target.Ingress), "nothing on this host can send to br0 (bridge)"},
		"down":           {b.at(t, b.server, "br1", target.Egress), "is down"},
		"no packet":      {match(b.at(t, b.server, "eth0", target.Egress), none), "no packet is found that the fault selects: icmp to port 1"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := Run(t.Context(), Order{Fault: "abc1", Paths: []Path{{Place: tt.p, Netem: qdisc.Netem{Loss: 20}}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r.Verdict != Inconclusive || !strings.Contains(r.Reason, tt.reason) || r.Places[0].Sent != 0 {
				t.Errorf("%s: %s, %d sent; want %s", r.Verdict, r.Reason, r.Places[0].Sent, tt.reason)
			}
		})
	}
	gone := b.to
	gone.Index = 9999
	if _, err := Run(t.Context(), Order{Paths: []Path{{Place: gone, Netem: qdisc.Netem{Loss: 20}}}}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a device that is gone: %v, want fs.ErrNotExist", err)
	}
	anew := b.to
	anew.Cookie = 1
	if _, err := Run(t.Context(), Order{Paths: []Path{{Place: anew, Netem: qdisc.Netem{Loss: 20}}}}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a namespace made anew: %v, want fs.ErrNotExist", err)
	}
	if _, err := Run(t.Context(), Order{Options: Options{Packets: 5}}, nil); err == nil || !strings.Contains(err.Error(), "packets: 5: want 100 to 1000000") {
		t.Errorf("5 packets: %v", err)
	}
}

func TestRunEnds(t *testing.T) {
	b := newBench(t)
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	last := 0
	begin := time.Now()
	_, err := Run(ctx, Order{Options: Options{Packets: 10_000, Rate: 100}, Paths: []Path{{Place: b.to, Between: b.toServer()}}}, func(sent, total int) {
		if total != 10_000 || sent < last {
			t.Errorf("progress %d of %d after %d", sent, total, last)
		}
		if last = sent; sent >= 30 {
			cancel(cause)
		}
	})
	if !errors.Is(err, cause) || last < 30 || time.Since(begin) > 20*time.Second {
		t.Errorf("%v after %d packets and %v", err, last, time.Since(begin))
	}
}

// A service in use notices nothing: its host answers no packet, its connections go on,
// and it is offered none.
func TestServiceIsUndisturbed(t *testing.T) {
	b, e := newBench(t), newEBPF(t)
	var listener net.Listener
	err := namespaces.Do(t.Context(), b.server, func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf("%s:%d", serverAddress, servicePort))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan net.Conn, 10)
	go func() {
		defer close(accepted)
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	var client net.Conn
	err = namespaces.Do(t.Context(), b.client, func() (err error) {
		client, err = net.Dial("tcp", listener.Addr().String())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	server := <-accepted
	echoed := make(chan error, 1)
	go func() { // until the client hangs up
		lines := bufio.NewScanner(server)
		for lines.Scan() {
			if _, err := fmt.Fprintln(server, lines.Text()); err != nil {
				echoed <- err
				return
			}
		}
		echoed <- lines.Err()
	}()
	exchange := func() {
		t.Helper()
		if _, err := fmt.Fprintln(client, "hello"); err != nil {
			t.Error(err)
		} else if line, err := bufio.NewReader(client).ReadString('\n'); err != nil || line != "hello\n" {
			t.Errorf("%q, %v", line, err)
		}
	}
	exchange()

	type count struct{ ns, group, name string }
	quiet := []count{
		{b.server, "Tcp", "OutRsts"}, {b.client, "Tcp", "OutRsts"}, {b.wire, "Tcp", "OutRsts"},
		{b.server, "Icmp", "OutMsgs"}, {b.client, "Icmp", "OutMsgs"}, {b.wire, "Icmp", "OutMsgs"},
		{b.server, "Tcp", "PassiveOpens"}, {b.server, "Tcp", "EstabResets"},
	}
	before := map[count]int{}
	for _, c := range quiet {
		before[c] = b.counter(t, c.ns, "snmp", c.group, c.name)
	}
	wrong := b.counter(t, b.server, "snmp", "Tcp", "InCsumErrors")
	segments := b.counter(t, b.server, "snmp", "Tcp", "OutSegs")

	n := qdisc.Netem{Delay: 5 * msec}
	if err := e.Set(t.Context(), b.to, n, time.Time{}); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	exchanges := 0
	go func() {
		defer close(done)
		for begin := time.Now(); time.Since(begin) < time.Second; exchanges++ {
			exchange()
			time.Sleep(20 * time.Millisecond)
		}
	}()
	const packets = 3000
	r, err := Run(t.Context(), Order{Options: Options{Packets: packets, Rate: 3000}, Paths: []Path{{Place: b.to, Netem: n, Between: b.toServer()}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if r.Places[0].Received != packets {
		t.Errorf("%d of %d came, %s: %s", r.Places[0].Received, packets, r.Verdict, r.Reason)
	}
	for _, c := range quiet {
		if now := b.counter(t, c.ns, "snmp", c.group, c.name); now != before[c] {
			t.Errorf("%s: %s %s grew by %d", c.ns, c.group, c.name, now-before[c])
		}
	}
	if got := b.counter(t, b.server, "snmp", "Tcp", "InCsumErrors") - wrong; got != packets {
		t.Errorf("TCP dropped %d of %d packets for their checksum", got, packets)
	}
	// Each exchange is answered by a segment with the line, at times by one more with
	// nothing but an acknowledgement.
	if got := b.counter(t, b.server, "snmp", "Tcp", "OutSegs") - segments; got > 2*exchanges+10 {
		t.Errorf("the server sent %d segments for %d exchanges", got, exchanges)
	}
	if exchanges < 10 {
		t.Errorf("only %d exchanges", exchanges)
	}
	_ = client.Close()
	if err := <-echoed; err != nil {
		t.Error(err)
	}
	_ = server.Close()
	_ = listener.Close()
	for c := range accepted {
		t.Errorf("one more connection from %s", c.RemoteAddr())
		_ = c.Close()
	}
}
