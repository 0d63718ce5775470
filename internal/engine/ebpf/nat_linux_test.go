package ebpf

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// Behind port 80 and an address that nobody has, listens natPort on loopback.
const (
	natPort  = 15001
	natAway4 = "192.0.2.80"
)

// translate has netfilter send what leaves the namespace for port 80 to natPort of this
// host; all else that it tracks it drops when it cannot make sense of it, as firewalls do.
// What leaves from loopback goes out with another source, too, if masquerade says so.
func (l *lab) translate(t *testing.T, family nftables.TableFamily, masquerade bool) {
	t.Helper()
	ns, err := os.Open(filepath.Join(namespaces.Dir, l.client))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ns.Close() }()
	c, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		t.Fatal(err)
	}
	table := c.AddTable(&nftables.Table{Family: family, Name: "redirect"})
	out := c.AddChain(&nftables.Chain{Name: "out", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest})
	for _, protocol := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		c.AddRule(&nftables.Rule{Table: table, Chain: out, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocol}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(80)},
			&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(natPort)},
			&expr.Redir{RegisterProtoMin: 1},
		}})
	}
	in := c.AddChain(&nftables.Chain{Name: "in", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: in, Exprs: []expr.Any{
		&expr.Ct{Register: 1, Key: expr.CtKeySTATE},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(expr.CtStateBitINVALID), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	// The marks of kube-proxy and its like are bits of the lower half.
	marked := c.AddChain(&nftables.Chain{Name: "marked", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityFilter})
	c.AddRule(&nftables.Rule{Table: table, Chain: marked, Exprs: []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: 1},
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(0xffff), Xor: make([]byte, 4)},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)},
		&expr.Verdict{Kind: expr.VerdictDrop},
	}})
	if masquerade {
		post := c.AddChain(&nftables.Chain{Name: "post", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource})
		c.AddRule(&nftables.Rule{Table: table, Chain: post, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Immediate{Register: 1, Data: net.ParseIP(client4).To4()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(20000)},
			&expr.Immediate{Register: 3, Data: binaryutil.BigEndian.PutUint16(20999)},
			&expr.NAT{Type: expr.NATTypeSourceNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: 1, RegProtoMin: 2, RegProtoMax: 3},
		}})
	}
	if err := c.Flush(); err != nil {
		t.Fatal(err)
	}
}

// echoes is a TCP and a UDP server on natPort that answer with what they get.
func (l *lab) echoes(t *testing.T, address string) {
	t.Helper()
	var (
		tcp *net.TCPListener
		udp *net.UDPConn
	)
	l.in(t, l.client, func() (err error) {
		if tcp, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.ParseIP(address), Port: natPort}); err != nil {
			return err
		}
		udp, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.ParseIP(address), Port: natPort})
		return err
	})
	t.Cleanup(func() { _ = tcp.Close(); _ = udp.Close() })
	go func() {
		for {
			c, err := tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	go func() {
		b := make([]byte, 70000)
		for {
			n, from, err := udp.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			_, _ = udp.WriteToUDPAddrPort(b[:n], from)
		}
	}()
}

// asks sends size bytes and wants them back, within some seconds.
func (l *lab) asks(t *testing.T, network, address string, size int) (time.Duration, error) {
	t.Helper()
	var c net.Conn
	start := time.Now()
	err := namespaces.Do(ctx, l.client, func() (err error) {
		c, err = net.DialTimeout(network, net.JoinHostPort(address, "80"), slower(4*time.Second))
		return err
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(slower(10 * time.Second)))
	data, got := bytes.Repeat([]byte("0123456789abcdef"), size/16), make([]byte, size)
	go func() { _, _ = c.Write(data) }()
	if _, err := io.ReadFull(c, got); err != nil {
		return 0, err
	}
	if !bytes.Equal(got, data) {
		return 0, fmt.Errorf("%d bytes came back damaged", size)
	}
	return time.Since(start), nil
}

// A fault on loopback holds translated flows like others: each direction alone, and both.
func TestTranslatedLoopback(t *testing.T) {
	const delay = 20 * ms
	for _, way := range []struct {
		name             string
		family           nftables.TableFamily
		masquerade       bool
		address, servers string
	}{
		{"redirect", nftables.TableFamilyIPv4, false, "127.0.0.1", "127.0.0.1"},
		{"redirect from afar", nftables.TableFamilyIPv4, false, natAway4, "127.0.0.1"},
		{"redirect and another source", nftables.TableFamilyIPv4, true, client4, "127.0.0.1"},
		{"redirect IPv6", nftables.TableFamilyIPv6, false, "::1", "::1"},
	} {
		t.Run(way.name, func(t *testing.T) {
			if brief() && way.name != "redirect" {
				t.Skip("the kernels differ in little here; all ways run outside the virtual machine")
			}
			l, e := newLab(t), newEngine(t, Config{})
			l.addRoute(t, natAway4)
			l.translate(t, way.family, way.masquerade)
			l.echoes(t, way.servers)
			for _, network := range []string{"tcp", "udp"} {
				if network == "udp" && way.masquerade {
					continue
				}
				protocol, sizes := uint8(6), []int{1 << 20, 16}
				if network == "udp" {
					protocol, sizes = 17, []int{16, 1408}
				}
				if _, err := l.asks(t, network, way.address, 16); err != nil {
					t.Fatalf("%s without a fault: %v", network, err)
				}
				for _, m := range []struct {
					name  string
					flow  target.Flow
					turns int
				}{
					{"there", target.Flow{Protocol: protocol, DestinationPorts: target.Port(natPort)}, 1},
					{"back", target.Flow{Protocol: protocol, SourcePorts: target.Port(80)}, 1},
					{"both", target.Flow{Protocol: protocol}, 2},
				} {
					p := target.Place{Namespace: l.client, Device: "lo", Index: 1, Hook: target.Egress, Match: target.Match{Include: []target.Flow{m.flow}}}
					set(t, e, p, qdisc.Netem{Delay: delay})
					for _, size := range sizes {
						took, err := l.asks(t, network, way.address, size)
						c := counters(t, e, p)
						if err != nil || c.Opened == 0 && took < time.Duration(m.turns)*delay || c.Seen == 0 || c.Overflow > 0 {
							t.Errorf("%s %s, %d bytes: took %s: %v; %+v", network, m.name, size, took, err, c)
						}
					}
					if err := e.Clear(ctx, p); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// addRoute has the client send what is for an address out of its device.
func (l *lab) addRoute(t *testing.T, address string) {
	t.Helper()
	l.in(t, l.client, func() error {
		return netlink.RouteAdd(&netlink.Route{
			LinkIndex: l.place.Index, Gw: net.ParseIP(server4),
			Dst: &net.IPNet{IP: net.ParseIP(address).To4(), Mask: net.CIDRMask(32, 32)},
		})
	})
}
