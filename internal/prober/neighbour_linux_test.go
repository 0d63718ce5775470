package prober

import (
	"context"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/namespaces"
	"netemd/probe"
)

// TestNeighbour: the client's neighbour does not say its link-layer address for a while, or
// ever, and that is the cause of what waits for it, not the SYNs that TCP repeats meanwhile.
func TestNeighbour(t *testing.T) {
	l := newLab(t)
	at := netip.AddrPortFrom(serverAddr.Addr(), 7)
	var listener net.Listener
	l.in(t, l.server, func() (err error) {
		listener, err = net.Listen("tcp", at.String())
		return err
	})
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	answer := func(ctx context.Context, whether string) error { // see arp_ignore in the kernel's ip-sysctl.rst
		return namespaces.Do(ctx, l.server, func() error {
			return os.WriteFile("/proc/sys/net/ipv4/conf/"+device+"/arp_ignore", []byte(whether), 0)
		})
	}
	for _, test := range []struct {
		name   string
		after  time.Duration // of silence the neighbour answers; 0: never
		ok     bool
		failed bool
	}{
		{"late", 1500 * time.Millisecond, true, false},
		{"never", 0, false, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := answer(t.Context(), "8"); err != nil {
				t.Fatal(err)
			}
			l.in(t, l.client, func() error {
				d, err := netlink.LinkByName(device)
				if err != nil {
					return err
				}
				return netlink.NeighDel(&netlink.Neigh{LinkIndex: d.Attrs().Index, IP: serverAddr.Addr().AsSlice()})
			})
			if test.after > 0 {
				done := make(chan error, 1)
				go func() {
					l.asks(t.Context())
					time.Sleep(test.after)
					done <- answer(context.Background(), "0")
				}()
				defer func() {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}()
			}
			c := Config{ClientNamespace: l.client, ServerNamespace: l.server, Order: Order{Address: at}}
			c.Order.Request = probe.Request{Kind: probe.KindTCP, Target: "x", Count: 1, Timeout: 6 * time.Second}
			r, err := Measure(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			s := r.Samples[0]
			t.Logf("%v, %s %s: %v, waits %+v, events %v", s.Duration(), s.Class, s.Error, s.Cause, s.Neighbours, r.Summary.Retransmissions)
			if (s.Class == probe.OK) != test.ok || s.Cause != probe.Neighbour {
				t.Errorf("%s, cause %s; want %v, slow by a neighbour", s.Class, s.Cause, test.ok)
			}
			if len(s.Neighbours) == 0 || test.ok && len(s.Neighbours) > 1 {
				t.Fatalf("waits %+v, want one, or more where there was no answer", s.Neighbours)
			}
			w := s.Neighbours[0]
			if took := time.Duration(w.UntilNS - w.FromNS); w.Server || w.Address != at.Addr() || w.Failed != test.failed || took < 900*time.Millisecond {
				t.Errorf("wait %+v of %v, want one of the client's for %v of more than a second", w, took, at.Addr())
			}
			// the next call finds the address known, or asks anew
			if test.after == 0 {
				return
			}
			c.Order.Request.Count = 2
			if r, err = Measure(t.Context(), c); err != nil || r.Summary.OK != 2 || len(r.Samples[0].Neighbours)+len(r.Samples[1].Neighbours) != 0 {
				t.Errorf("calls after it: %+v, %v; want none that waits", r.Samples, err)
			}
		})
	}
}

// asks waits until the client's kernel asks for the server's link-layer address.
func (l lab) asks(ctx context.Context) {
	for asking := false; !asking && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		_ = namespaces.Do(ctx, l.client, func() error {
			all, err := netlink.NeighList(0, netlink.FAMILY_V4)
			for _, n := range all {
				asking = asking || n.State == netlink.NUD_INCOMPLETE
			}
			return err
		})
	}
}
