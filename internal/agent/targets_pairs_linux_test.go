package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/fault"
	"netemd/internal/location"
	"netemd/internal/target"
	"netemd/namespaces"
	"netemd/qdisc"
)

// Four hosts on one bridge; A and B are cut off from C and D. Exactly eight of the twelve
// ordered pairs are affected, those within a group are not.
func TestAffectedPairs(t *testing.T) {
	lan := netns(t, "lan")
	err := namespaces.Do(t.Context(), lan, func() error {
		br := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		return errors.Join(netlink.LinkAdd(br), netlink.LinkSetUp(br))
	})
	if err != nil {
		t.Fatal(err)
	}
	hosts := []string{"A", "B", "C", "D"}
	in, at := map[string]string{}, map[string]string{}
	for i, h := range hosts {
		in[h], at[h] = netns(t, "pair"+h), fmt.Sprintf("10.81.0.%d", i+1)
		err := namespaces.CreateVeth(
			namespaces.VethEnd{Namespace: in[h], Name: "eth0", Addresses: []netip.Prefix{netip.MustParsePrefix(at[h] + "/24")}},
			namespaces.VethEnd{Namespace: lan, Name: "to" + h})
		if err != nil {
			t.Fatal(err)
		}
		if err := namespaces.Do(t.Context(), lan, func() error {
			port, err := netlink.LinkByName("to" + h)
			br, err2 := netlink.LinkByName("br0")
			if err = errors.Join(err, err2); err != nil {
				return err
			}
			return errors.Join(netlink.LinkSetMaster(port, br), netlink.LinkSetUp(port))
		}); err != nil {
			t.Fatal(err)
		}
	}
	cut := func() (pairs []string) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, from := range hosts {
			for _, to := range hosts {
				if from == to {
					continue
				}
				all.Go(func() {
					ok := false
					for range 4 {
						_ = namespaces.Do(context.Background(), in[from], func() error {
							c, err := net.DialTimeout("tcp", at[to]+":80", time.Second) //nolint:noctx // bounded
							if err == nil {
								_ = c.Close()
							}
							ok = err == nil || errors.Is(err, unix.ECONNREFUSED)
							return nil
						})
						if ok {
							return
						}
					}
					mu.Lock()
					defer mu.Unlock()
					pairs = append(pairs, from+to)
				})
			}
		}
		all.Wait()
		slices.Sort(pairs)
		return pairs
	}
	for end := time.Now().Add(30 * time.Second); len(cut()) > 0; { // until the bridge forwards
		if time.Now().After(end) {
			t.Fatalf("without a fault: %v do not reach each other", cut())
		}
	}
	c := serve(t)
	for _, from := range []string{"A", "B"} {
		for _, to := range []string{"C", "D"} {
			name := from + "to" + to
			if _, err := c.AddTarget(t.Context(), target.Definition{Name: name, Host: at[to], Namespace: in[from]}); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Apply(t.Context(), fault.Spec{Target: name, Direction: fault.Both, Engine: fault.EBPF, Packet: &qdisc.Netem{Loss: 100}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := strings.Join(cut(), " "), "AC AD BC BD CA CB DA DB"; got != want {
		t.Errorf("affected pairs %s, want %s", got, want)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil {
		t.Fatal(err)
	}
	if got := cut(); len(got) > 0 {
		t.Errorf("cleared, and affected: %v", got)
	}
}

// chooserEnv makes the test program one that looks for devices in the namespace it was
// started in, as an agent there does.
const chooserEnv = "NETEMD_TEST_AGENT_CHOOSER"

// choose says what an agent takes for a definition, a device's name or a prefix.
func choose(what string) {
	d := target.Definition{Device: what}
	if p, err := netip.ParsePrefix(what); err == nil {
		d = target.Definition{AddressIn: p}
	}
	got, err := location.Finder{Avoid: (&Agent{}).avoid}.Find(context.Background(), d)
	fmt.Print(got.To.Device, " ", err)
}

// No name of a device is guessed, and the one with the default route is never chosen for
// its address.
func TestChosenDevice(t *testing.T) {
	ns := netns(t, "vm")
	err := namespaces.Do(t.Context(), ns, func() error {
		for _, d := range []struct{ name, address string }{{"ens5", "192.0.2.10/24"}, {"ens6", "198.51.100.10/24"}} { // devices are told in this order
			l := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: d.name}} // a device that needs no module
			a, err := netlink.ParseAddr(d.address)
			if err = errors.Join(err, netlink.LinkAdd(l), netlink.LinkSetUp(l)); err == nil {
				err = netlink.AddrAdd(l, a)
			}
			if err != nil {
				return err
			}
		}
		return netlink.RouteAdd(&netlink.Route{Gw: net.IPv4(192, 0, 2, 1)})
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"eth1":            "a device that exists here: ens5, ens6, lo",
		"198.51.100.0/24": "ens6 <nil>",
		"192.0.2.0/24":    "ens5 has one, but it carries the default route: name it to have it",
		"0.0.0.0/0":       "ens6 <nil>", // the other one is left out
		"203.0.113.0/24":  "one device has an address: ens5 (192.0.2.10), ens6 (198.51.100.10)",
		"ens5":            "ens5 <nil>",
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), chooserEnv+"="+what)
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := namespaces.Start(ns, cmd); err == nil {
			_ = cmd.Wait()
		}
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s: %s, want %q", what, out.String(), want)
		}
	}
}
