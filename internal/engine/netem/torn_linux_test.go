package netem

import (
	"testing"

	"github.com/mdlayher/netlink"
	"github.com/mdlayher/netlink/nltest"
	"golang.org/x/sys/unix"
)

// A list that goes on changing, as where somebody makes a lab of many nodes, is asked for
// until it is whole.
func TestTornDump(t *testing.T) {
	const changes = 12
	asked := 0
	nl := nltest.Dial(func(reqs []netlink.Message) ([]netlink.Message, error) {
		asked++
		reply := netlink.Message{Header: netlink.Header{Type: unix.RTM_NEWLINK, Sequence: reqs[0].Header.Sequence, PID: reqs[0].Header.PID}}
		if asked <= changes {
			reply.Header.Flags |= netlink.DumpInterrupted
		}
		return []netlink.Message{reply}, nil
	})
	defer func() { _ = nl.Close() }()
	c := &rtnl{nl: nl, namespace: "busy"}
	if all, err := c.dump("link list", "all devices", unix.RTM_GETLINK, ifinfomsg(0)); err != nil || len(all) != 1 || asked != changes+1 {
		t.Errorf("%d replies after %d questions, %v", len(all), asked, err)
	}
}
