package netemtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"netemd/namespaces"
	"netemd/netemtest"
	"netemd/qdisc"
)

// at is a fault at the near end of p, both ways.
func (p place) at(n qdisc.Netem) netemtest.Spec {
	return netemtest.Spec{Device: "v0", Namespace: p.near, Netem: n}
}

// Faults of one test combine, each ends by itself, and a change is of one alone.
func TestFaultsOfOneTestCombine(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	patiently(t, func(r *recorder) { combine(t, r, p) })
}

func combine(t *testing.T, r *recorder, p place) {
	loss := netemtest.Inject(r, p.at(qdisc.Netem{Loss: 100}))
	delay := netemtest.Inject(r, p.at(qdisc.Netem{Delay: 30 * time.Millisecond}))
	if p.open(t, 100*time.Millisecond) {
		r.Error("the loss is not in force")
	}
	if s := loss.Stats(); s.Lost == 0 || s.State != "active" {
		r.Errorf("stats: %+v", s)
	}
	loss.Clear()
	loss.Clear()
	start := time.Now()
	if !p.open(t, 10*time.Second) || time.Since(start) < 30*time.Millisecond {
		r.Errorf("an answer after %v, want 30 ms at least", time.Since(start))
	}
	delay.Change(qdisc.Netem{Delay: 60 * time.Millisecond})
	start = time.Now()
	if !p.open(t, 10*time.Second) || time.Since(start) < 60*time.Millisecond {
		r.Errorf("an answer after %v, want 60 ms at least", time.Since(start))
	}
	// A part of the test is the same test, while that has a fault.
	part := run(t, r.Name()+"/part", func(r *recorder) {
		netemtest.Inject(r, p.at(qdisc.Netem{Loss: 100}))
		if p.open(t, 100*time.Millisecond) {
			r.Error("the part's loss is not in force")
		}
	})
	if part.Failed() {
		r.Error(part.text())
	}
	if !p.open(t, 10*time.Second) {
		r.Error("the part's fault outlived it")
	}
}

// Who sets the same thing twice would wait for himself.
func TestSameThingTwice(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	r := run(t, t.Name()+"Inner", func(t *recorder) {
		netemtest.Inject(t, p.at(qdisc.Netem{Loss: 20})).AllowUnmet()
		netemtest.Inject(t, p.at(qdisc.Netem{Loss: 30}))
	})
	r.wants(t, true, "own fault", "sets the same thing", "Change that one, or Clear it before")
}

// A test that ran unimpaired fails, and says which fault was active when.
func TestWhatFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	for _, tt := range []struct {
		name   string
		test   func(t *recorder)
		failed bool
		says   []string
	}{
		{
			name: "unmet", failed: true,
			test: func(t *recorder) { netemtest.Inject(t, p.at(qdisc.Netem{Loss: 20})) },
			says: []string{"loss 20% to v0@" + p.near, "met no packet: the test ran as if there were no fault", "what was active when", "applied", "cleared: 0 packets seen"},
		},
		{
			name: "unmet-allowed",
			test: func(t *recorder) { netemtest.Inject(t, p.at(qdisc.Netem{Loss: 20})).AllowUnmet() },
		},
		{
			name: "none-chosen", failed: true,
			test: func(r *recorder) {
				netemtest.Inject(r, netemtest.Spec{Device: "v0", Namespace: p.near, Rule: netemtest.Rule{Packets: "match tcp.dstport == 1", Count: 1}})
				p.open(t, 10*time.Second)
			},
			says: []string{"chose no packet of"},
		},
		{
			name: "change", failed: true,
			test: func(r *recorder) {
				f := netemtest.Inject(r, p.at(qdisc.Netem{Loss: 1}))
				p.open(t, 10*time.Second)
				f.Change(qdisc.Netem{Delay: time.Millisecond, Loss: 0})
				r.Error("of the test's own")
			},
			says: []string{"changed: delay 1ms; before: ", "of the test's own"},
		},
		{
			name: "bad", failed: true,
			test: func(t *recorder) { netemtest.Loss(t, "pg", "20") },
			says: []string{"netemtest: loss: ", "%"},
		},
		{
			name: "nothing", failed: true,
			test: func(t *recorder) { netemtest.Inject(t, netemtest.Spec{Target: "pg"}) },
			says: []string{"a packet impairment"},
		},
		{
			name: "rule", failed: true,
			test: func(t *recorder) { netemtest.Drop(t, "pg", "match tcp.lenn > 1", 1) },
			says: []string{"tcp.lenn"},
		},
		{
			name: "unknown", failed: true,
			test: func(t *recorder) { netemtest.Partition(t, "no-such-target") },
			says: []string{`unknown target "no-such-target"`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			run(t, t.Name(), tt.test).wants(t, tt.failed, tt.says...)
		})
	}
}

// A device that goes takes its fault along, which the test is told of.
func TestLostFaultFails(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	remove := func(t *recorder) {
		w := netemtest.Watch(t)
		netemtest.Inject(t, p.at(qdisc.Netem{Loss: 100})).AllowUnmet()
		w.Next("applied", 10*time.Second)
		if err := namespaces.Do(t.Context(), p.near, func() error {
			l, err := netlink.LinkByName("v0")
			if err == nil {
				err = netlink.LinkDel(l)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if e := w.Next("lost", 10*time.Second); !strings.Contains(e.What, "loss 100%") {
			t.Errorf("lost: %+v", e)
		}
	}
	run(t, t.Name()+"Inner", remove).wants(t, true, "was not in force as asked for all the time: lost", "is lost")

	p = newPlaceNamed(t, t.Name()+"again")
	run(t, t.Name()+"Inner", func(r *recorder) {
		w := netemtest.Watch(r)
		netemtest.Inject(r, p.at(qdisc.Netem{Loss: 100})).AllowUnmet().AllowGaps()
		if err := namespaces.Do(r.Context(), p.near, func() error {
			l, err := netlink.LinkByName("v0")
			if err == nil {
				err = netlink.LinkDel(l)
			}
			return err
		}); err != nil {
			r.Fatal(err)
		}
		w.Next("lost", 10*time.Second)
	}).wants(t, false)
}

// Two tests at one device: the second one waits for the first one's fault to end, and gives up
// before its deadline.
func TestWaitsForAnotherTest(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	begun, end := make(chan struct{}), make(chan struct{})
	first := make(chan *recorder)
	go func() {
		first <- run(t, t.Name()+"First", func(t *recorder) {
			netemtest.Inject(t, p.at(qdisc.Netem{Delay: time.Millisecond})).AllowUnmet()
			close(begun)
			<-end
		})
	}()
	<-begun
	hasty := &recorder{TB: t, name: t.Name() + "Hasty", limit: 2 * time.Second}
	hasty.do(func(t *recorder) { netemtest.Inject(t, p.at(qdisc.Netem{Loss: 100})) })
	hasty.wants(t, true, "waits for another fault's end: ", "is held by uid 0")

	second := make(chan *recorder)
	go func() {
		second <- run(t, t.Name()+"Second", func(r *recorder) {
			w := netemtest.Watch(r)
			netemtest.Inject(r, p.at(qdisc.Netem{Loss: 100}))
			w.Next("applied", 10*time.Second)
			if p.open(t, 100*time.Millisecond) {
				r.Error("not in force")
			}
			r.Error("of its own")
		})
	}()
	select {
	case r := <-second:
		t.Fatalf("it did not wait: %s", r.text())
	case <-time.After(300 * time.Millisecond):
	}
	close(end)
	(<-first).wants(t, false)
	(<-second).wants(t, true, "waits for another fault's end: ", "of its own", "applied: loss 100%")
}

// Whoever makes a fault in the way at once is told so where he does not want to wait.
func TestWaitNotAtAll(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	netemtest.Inject(t, p.at(qdisc.Netem{Delay: time.Millisecond})).AllowUnmet()
	run(t, "Another", func(t *recorder) {
		s := p.at(qdisc.Netem{Loss: 100})
		s.Wait = -1
		netemtest.Inject(t, s)
	}).wants(t, true, "conflict")
}

// A rule acts on what it chose, and names it.
func TestRule(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	f := netemtest.Inject(t, netemtest.Spec{Device: "v0", Namespace: p.near, Rule: netemtest.Rule{Packets: "syn", Count: 1}})
	start := time.Now()
	if !p.open(t, 20*time.Second) || time.Since(start) < time.Second {
		t.Errorf("connected after %v, want 1 s at least, when a lost SYN is sent again", time.Since(start))
	}
	packets := f.Packets()
	if len(packets) != 1 || packets[0].Destination != "10.78.0.2:9" || packets[0].Flags != 2 {
		t.Errorf("packets: %+v", packets)
	}
	want := "1 lost, 1 chosen"
	if s := fmt.Sprint(f.Stats()); !strings.HasSuffix(s, want) {
		t.Errorf("stats %q, want %q", s, want)
	}
	f.Clear()
	if diff := cmp.Diff(packets, f.Packets()); diff != "" {
		t.Errorf("after the end (-before +after):\n%s", diff)
	}
}
