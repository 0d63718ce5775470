package ebpf

import (
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"netemd/internal/target"
	"netemd/qdisc"
)

// What somebody does to the TAP of a queue is seen, and what is set again is in force
// again. Until then packets pass, but those before it was seen.
func TestSomebodyMeddlesWithTheTAP(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for name, c := range map[string]struct {
			meddle func(other string, tap netlink.Link) error
			stays  bool
			reason string
		}{
			"down":    {func(_ string, tap netlink.Link) error { return netlink.LinkSetDown(tap) }, false, "netemd's own device of the queue, netemq0, is down"},
			"renamed": {func(_ string, tap netlink.Link) error { return netlink.LinkSetName(tap, "hugo") }, true, ""},
			"elsewhere": {func(other string, tap netlink.Link) error {
				fd, err := unix.Open("/run/netns/"+other, unix.O_RDONLY|unix.O_CLOEXEC, 0)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				return netlink.LinkSetNsFd(tap, fd)
			}, false, "netemd's own device of the queue, index"},
			"deleted": {func(_ string, tap netlink.Link) error { return netlink.LinkDel(tap) }, false, "netemd's own device of the queue"},
		} {
			t.Run(string(hook)+" "+name, func(t *testing.T) {
				l, e := newLab(t), newEngine(t, Config{})
				p, other, f := onPort(l.place), l.server, l.newFlow(t, client4, server4, 0, port)
				if hook == target.Ingress {
					p, other = onPort(l.at(t, l.server, target.Ingress)), l.client
				}
				want := qdisc.Netem{Delay: 20 * ms, Seed: 7}
				set(t, e, p, want)
				impaired := func() (came int, delayed bool) {
					f.send(20, 64, ms)
					got := f.collect(20)
					return len(got), len(got) > 0 && least(got) >= 20*ms
				}
				if came, delayed := impaired(); came != 20 || !delayed {
					t.Fatalf("before: %d of 20 came, delayed %v", came, delayed)
				}
				l.in(t, p.Namespace, func() error {
					tap, err := netlink.LinkByName("netemq0")
					if err != nil {
						return err
					}
					if c.stays { // the kernel may want it down for that, and up again
						if err := c.meddle(other, tap); err == nil {
							return nil
						}
						if err := netlink.LinkSetDown(tap); err != nil {
							return err
						}
						defer func() { _ = netlink.LinkSetUp(tap) }()
					}
					return c.meddle(other, tap)
				})
				reason := ""
				inForce := func() bool {
					st, err := e.Read(ctx, p)
					reason = st.Reason
					if err != nil {
						t.Fatal(err)
					}
					return len(want.Differences(st.Netem)) == 0
				}
				if c.stays {
					if came, delayed := impaired(); !inForce() || came != 20 || !delayed {
						t.Errorf("%d of 20 came, delayed %v, in force %v", came, delayed, inForce())
					}
					return
				}
				until(t, "a look that sees it", slower(5*time.Second), func() bool { return !inForce() })
				if inForce(); !strings.Contains(reason, c.reason) { // it stays
					t.Errorf("reason %q, want %q", reason, c.reason)
				}
				if came, delayed := impaired(); came != 20 || delayed {
					t.Errorf("once it is seen: %d of 20 came, delayed %v", came, delayed)
				}
				set(t, e, p, want)
				if came, delayed := impaired(); came != 20 || !delayed || !inForce() || reason != "" {
					t.Errorf("set again: %d of 20 came, delayed %v, in force %v, reason %q", came, delayed, inForce(), reason)
				}
			})
		}
	}
}
