package agent

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"netemd/internal/client"
	"netemd/internal/fault"
	"netemd/internal/fidelity"
	"netemd/internal/target"
	"netemd/internal/testenv"
	"netemd/namespaces"
	"netemd/qdisc"
)

// becomes waits until a fault is in a state, and returns how long that took.
func becomes(t *testing.T, c *client.Client, id string, want fault.State, limit time.Duration) (f fault.Fault, took time.Duration) {
	t.Helper()
	start := time.Now()
	for {
		f, err := c.Get(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if took = time.Since(start); f.State == want {
			return f, took
		}
		if took > limit {
			t.Fatalf("%s is %s (%s) after %s, want %s; warnings %q", id, f.State, f.Reason, took, want, f.Warnings)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// eventsOf are what the agent tells of a fault. Watching
// asks nothing, as becomes does.
func eventsOf(t *testing.T, c *client.Client, id string) <-chan fault.Event {
	t.Helper()
	events := make(chan fault.Event, 1000)
	begun := make(chan struct{})
	go func() {
		_ = c.WatchFrom(t.Context(), 0, "", func() { close(begun) }, func(e fault.Event) {
			if e.Fault.ID == id {
				events <- e
			}
		})
	}()
	<-begun
	return events
}

func next(t *testing.T, events <-chan fault.Event, kind string) fault.Event {
	t.Helper()
	for end := time.After(30 * time.Second); ; {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
		case <-end:
			t.Fatalf("no event %s within 30 s", kind)
		}
	}
}

// A device is deleted and made anew with the same name, again and again, under traffic: a
// fault is lost within 1 s, the new device is not impaired unless that was asked for, and
// what was can be cleared.
func TestDeviceRestarts(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	all := &qdisc.Netem{Loss: 100}
	plain := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5001)), Packet: all})
	follows := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5002)), Packet: all, Reattach: true})
	both := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5002)), Packet: &qdisc.Netem{Delay: time.Millisecond}, Reattach: true})
	if !follows.Spec.Reattach || plain.Spec.Reattach {
		t.Errorf("asked for: %t and %t", follows.Spec.Reattach, plain.Spec.Reattach)
	}
	events := eventsOf(t, c, follows.ID)
	restarts := 3
	if os.Getenv("NETEMD_TEST_LONG") != "" {
		restarts = 50
	}
	var slowest time.Duration
	for i := range restarts {
		if _, err := c.Get(t.Context(), follows.ID); err != nil { // what passed since the last look goes with the device
			t.Fatal(err)
		}
		deleted := time.Now()
		remove(t, a, "v0")
		lost := next(t, events, "lost")
		slowest = max(slowest, lost.Time.Sub(deleted))
		if !strings.Contains(lost.Fault.Reason, "the device v0 in netns "+a+" is gone") {
			t.Errorf("lost: %q", lost.Fault.Reason)
		}
		pair(t, a, b)
		if e := next(t, events, "reattached"); e.Fault.State != fault.Active || !e.Fault.Expires.Equal(follows.Expires) {
			t.Errorf("reattached: %s until %v, want active until %v", e.Fault.State, e.Fault.Expires, follows.Expires)
		}
		becomes(t, c, both.ID, fault.Active, 30*time.Second)
		hit, spared := arrive(t, a, b, 5002, 50), arrive(t, a, b, 5001, 50)
		if hit != 0 || spared != 50 {
			t.Fatalf("restart %d: of the fault that follows %d of 50 arrive, want none; of the other %d, want all", i, hit, spared)
		}
	}
	if slowest > time.Second+2*testenv.Lateness() && slowest > 5*time.Second {
		t.Errorf("lost after %s", slowest)
	}
	t.Logf("%d restarts, lost after %s at most", restarts, slowest)
	got, err := c.Get(t.Context(), follows.ID)
	if w := strings.Join(got.Warnings, "\n"); err != nil || !strings.Contains(w, fmt.Sprintf("that was the %d. time", restarts)) || got.Total.Seen < uint64(50*restarts) {
		t.Errorf("%v, %+v, warnings %q", err, got.Total, w)
	}
	cleared, err := c.Clear(t.Context(), fault.Selector{ID: plain.ID})
	if err != nil || len(cleared) != 1 || !strings.Contains(cleared[0].Reason, "is gone") {
		t.Errorf("clear of what is lost: %+v, %v", cleared, err)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{All: true}); err != nil {
		t.Error(err)
	}
	if got := arrive(t, a, b, 5002, 50); got != 50 {
		t.Errorf("after all was cleared %d of 50 arrive", got)
	}
}

// remove deletes a device.
func remove(t *testing.T, ns, name string) {
	t.Helper()
	err := namespaces.Do(t.Context(), ns, func() error {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkDel(link)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A namespace is deleted and made anew with the same name.
func TestNamespaceMadeAnew(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	all := &qdisc.Netem{Loss: 100}
	plain := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5001)), Packet: all})
	follows := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5002)), Packet: all, Reattach: true})
	for range 2 {
		if err := namespaces.Delete(a); err != nil {
			t.Fatal(err)
		}
		becomes(t, c, plain.ID, fault.Lost, 30*time.Second)
		becomes(t, c, follows.ID, fault.Lost, 30*time.Second)
		if err := namespaces.Create(a); err != nil {
			t.Fatal(err)
		}
		again(t, a, b)
		becomes(t, c, follows.ID, fault.Active, 30*time.Second)
		hit, spared := arrive(t, a, b, 5002, 50), arrive(t, a, b, 5001, 50)
		if hit != 0 || spared != 50 {
			t.Errorf("%d of 50 arrive of the fault that follows, want none; %d of the other, want all", hit, spared)
		}
	}
}

// again connects a to b anew; the other end of a deleted namespace's pair goes a moment later.
func again(t *testing.T, a, b string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		gone := false
		err := namespaces.Do(t.Context(), b, func() error {
			_, err := netlink.LinkByName("v1")
			_, gone = errors.AsType[netlink.LinkNotFoundError](err)
			return nil
		})
		if err != nil || time.Now().After(end) {
			t.Fatalf("the old pair does not go: %v", err)
		}
		if gone {
			break
		}
	}
	pair(t, a, b)
}

// A fault on the processes of a group: those of another one at the same device and port have
// none of it; it is lost with the group, and a group that is made anew is another one.
func TestFaultOnAGroup(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	member, other := testenv.NewCgroup(t, "agent/unit.service"), testenv.NewCgroup(t, "agent/other.service")
	c := serve(t)
	sel := target.Selector{Namespace: a, Device: "v0", Cgroup: member.Path}
	all := &qdisc.Netem{Loss: 100}
	f := apply(t, c, fault.Spec{Selector: &sel, Direction: fault.Both, Packet: all})
	if !strings.Contains(f.Spec.Selector.String(), "cgroup "+member.Path) {
		t.Errorf("applied: %s", f.Spec.Selector)
	}
	check := func(what string, g *testenv.Cgroup, want bool) {
		t.Helper()
		g.Run(t, func() {
			if got := arrive(t, a, b, 5001, 20); (got == 20) != want || got != 20 && got != 0 {
				t.Errorf("%s: %d of 20 arrive", what, got)
			}
		})
	}
	check("the group", member, false)
	check("another group", other, true)

	unit := sel
	unit.Cgroup = "unit.service" // the same group, said as systemd's unit
	_, err := c.Apply(t.Context(), fault.Spec{Selector: &unit, Packet: all, Engine: packetEngine()})
	if !errors.Is(err, fault.ErrConflict) {
		t.Errorf("the same group by its unit: %v, want a conflict", err)
	}
	beside := sel
	beside.Cgroup = other.Path
	g := apply(t, c, fault.Spec{Selector: &beside, Direction: fault.Both, Packet: &qdisc.Netem{Delay: time.Millisecond}, Reattach: true})

	member.Remove(t)
	other.Remove(t)
	lost, _ := becomes(t, c, f.ID, fault.Lost, 30*time.Second)
	if !strings.Contains(lost.Reason, member.Path+" was removed") {
		t.Errorf("lost: %q", lost.Reason)
	}
	becomes(t, c, g.ID, fault.Lost, 30*time.Second)
	member.Make(t)
	other.Make(t)
	becomes(t, c, g.ID, fault.Active, 30*time.Second)
	check("the group made anew", member, true)
	if f, _ := becomes(t, c, f.ID, fault.Lost, time.Second); f.State != fault.Lost {
		t.Errorf("it is %s", f.State)
	}
	if _, err := c.Change(t.Context(), g.ID, qdisc.Patch{Loss: new(qdisc.Percent(100))}); err != nil {
		t.Fatal(err)
	}
	check("the group made anew that was followed", other, false)
	if _, err := c.Verify(t.Context(), g.ID, fidelity.Options{}, func(int, int) {}); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("verify: %v, want it unsupported", err)
	}
	if _, err := c.Clear(t.Context(), fault.Selector{ID: f.ID}); err != nil {
		t.Errorf("clear of what is lost: %v", err)
	}
	_, err = c.Apply(t.Context(), fault.Spec{Selector: &target.Selector{Namespace: a, Device: "v0", Cgroup: member.Path + "/none"}, Packet: all})
	if !errors.Is(err, qdisc.ErrInvalid) || !strings.Contains(err.Error(), "want a cgroup that exists") {
		t.Errorf("no such group: %v", err)
	}
}

// What comes back and goes again at once, with traffic and clears beside it, leaves nothing.
func TestDeviceFlaps(t *testing.T) {
	a, b := netns(t, "a"), netns(t, "b")
	pair(t, a, b)
	c := serve(t)
	f := apply(t, c, fault.Spec{Selector: ports(a, target.Port(5001)), Packet: &qdisc.Netem{Delay: time.Millisecond}, Reattach: true})
	var stop atomic.Bool
	done := make(chan error, 1)
	go func() { // as fast as the kernel makes and deletes them
		for !stop.Load() {
			err := namespaces.Do(t.Context(), a, func() error {
				if link, err := netlink.LinkByName("v0"); err == nil {
					return netlink.LinkDel(link)
				}
				return nil
			})
			if err == nil {
				err = namespaces.Do(t.Context(), a, func() error {
					return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "v0", Flags: net.FlagUp}})
				})
			}
			if err != nil {
				done <- err
				return
			}
			time.Sleep(130 * time.Millisecond)
		}
		done <- nil
	}()
	time.Sleep(1500 * time.Millisecond)
	cleared, err := c.Clear(t.Context(), fault.Selector{ID: f.ID})
	if err != nil || len(cleared) != 1 {
		t.Errorf("cleared while it flaps: %+v, %v", cleared, err)
	}
	stop.Store(true)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	if left, err := c.List(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("left %+v, %v", left, err)
	}
}
