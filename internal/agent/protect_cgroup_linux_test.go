package agent

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"

	"netemd/internal/cgroup"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// A fault on a group cuts off a session only when that is the group's: what is selected by
// the socket is judged by the socket.
func TestProtectKnowsGroups(t *testing.T) {
	member, other := testenv.NewCgroup(t, "guard/session/leaf"), testenv.NewCgroup(t, "guard/other")
	a := netns(t, "a")
	var session Connection
	err := namespaces.Do(t.Context(), a, func() error {
		lo, err := netlink.LinkByName("lo")
		if err := errors.Join(err, netlink.LinkSetUp(lo)); err != nil {
			return err
		}
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = ln.Close() })
		var c net.Conn
		member.Run(t, func() { c, err = net.Dial("tcp", ln.Addr().String()) })
		if err != nil {
			return err
		}
		t.Cleanup(func() { _ = c.Close() })
		session.Local, session.Remote = netip.MustParseAddrPort(c.LocalAddr().String()), netip.MustParseAddrPort(c.RemoteAddr().String())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	above, err := cgroup.Find(member.Path[:len(member.Path)-len("/leaf")])
	if err != nil {
		t.Fatal(err)
	}
	apart, err := cgroup.Find(other.Path)
	if err != nil {
		t.Fatal(err)
	}
	inside(t, a, func(g guard) {
		g.controls = func() []Connection { return []Connection{session} }
		for name, tt := range map[string]struct {
			match target.Match
			want  bool
		}{
			"what the group sends":      {target.Match{}.Of(above), true},
			"what goes to the group":    {target.Match{}.Of(above).Reverse(), true},
			"another group":             {target.Match{}.Of(apart), false},
			"to another group":          {target.Match{}.Of(apart).Reverse(), false},
			"the group, another port":   {target.Match{Include: []target.Flow{{DestinationPorts: target.Port(1)}}}.Of(above), false},
			"everybody":                 {target.Match{}, true},
			"a group, or all of a port": {target.Match{Include: []target.Flow{{SourceCgroup: apart}, {DestinationPorts: target.Port(session.Remote.Port())}}}, true},
		} {
			p := target.Place{Device: "lo", Index: loopback, Cookie: g.cookie, Hook: target.Egress, Match: tt.match}
			err := g.control(fault.Spec{Packet: &qdisc.Netem{Loss: 1}}, p)
			if got := errors.Is(err, fault.ErrProtected); got != tt.want {
				t.Errorf("%s: %v, want it protected: %t", name, err, tt.want)
			}
		}
	})
	for name, tt := range map[string]struct {
		level int
		want  bool
	}{"a slice of the system's": {1, true}, "a unit": {2, false}} {
		g := cgroup.Group{Path: "/a", ID: 7, Level: tt.level}
		if got := broad(target.Match{}.Of(g)); got != tt.want {
			t.Errorf("%s is most of a host: %t, want %t", name, got, tt.want)
		}
	}
}
