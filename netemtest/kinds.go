package netemtest

import (
	"testing"
	"time"

	"netemd/internal/fault"
	"netemd/qdisc"
)

// Loss loses that share of the packets that go to the target, such as "20%", each by itself.
func Loss(t testing.TB, target, share string) *Fault {
	t.Helper()
	p, err := qdisc.ParsePercent(share)
	if err != nil {
		t.Fatalf("netemtest: loss: %v", err)
	}
	return Apply(t, target, qdisc.Netem{Loss: p})
}

// Delay holds every packet that goes to the target that long: one way, so that a round trip is
// longer by as much.
func Delay(t testing.TB, target string, delay time.Duration) *Fault {
	t.Helper()
	return Apply(t, target, qdisc.Netem{Delay: delay})
}

// Partition loses every packet to and from the target. No side is told: what waits for an
// answer waits until its own deadline.
func Partition(t testing.TB, target string) *Fault {
	t.Helper()
	return Inject(t, Spec{Target: target, Direction: Both, Netem: qdisc.Netem{Loss: 100}})
}

// Apply impairs the packets that go to the target.
func Apply(t testing.TB, target string, n qdisc.Netem) *Fault {
	t.Helper()
	return Inject(t, Spec{Target: target, Netem: n})
}

// Drop drops exactly the packets to the target that Rule.Packets describes, count of them, or
// all for 0. Drop(t, "pg", "syn", 1) makes the next connect take 1 s, which is when the kernel
// sends the SYN again. Inject with a Rule has more.
func Drop(t testing.TB, target, packets string, count uint32) *Fault {
	t.Helper()
	return Inject(t, Spec{Target: target, Rule: Rule{Packets: packets, Count: count}})
}

// Kill has all processes of a lab's service killed (SIGKILL), and the service started again
// after down; 0 is when the fault ends. It waits until they are killed. Inject with an Outage
// has more: several services, again and again by a seed.
func Kill(t testing.TB, service string, down time.Duration) *Fault {
	t.Helper()
	return Inject(t, Spec{Outage: &Outage{Action: fault.Kill, Services: []string{service}, Down: down}})
}

// Stop has all processes of a lab's service stopped (SIGSTOP), and let go on after down; 0 is
// when the fault ends. Connections stay open meanwhile, and nothing answers.
func Stop(t testing.TB, service string, down time.Duration) *Fault {
	t.Helper()
	return Inject(t, Spec{Outage: &Outage{Action: fault.Stop, Services: []string{service}, Down: down}})
}

// Restart has a lab's service stopped by its own way, and started again at once.
func Restart(t testing.TB, service string) *Fault {
	t.Helper()
	return Inject(t, Spec{Outage: &Outage{Action: fault.Restart, Services: []string{service}}})
}

// Toxic puts toxics on the connections through the target's proxy, Network.Proxy: what a proxy
// can do to a stream, and to connections that are open already.
func Toxic(t testing.TB, target string, toxics ...ToxicSpec) *Fault {
	t.Helper()
	return Inject(t, Spec{Target: target, Toxics: toxics})
}
