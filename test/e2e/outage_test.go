package e2e

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"netemd/probe"
)

// TestDeadPooledConnection: a partition outlives the budget of a call on the pool's only
// connection. That costs one failed query on it, and the result tells when the network
// healed from when a query succeeded.
func TestDeadPooledConnection(t *testing.T) {
	a := start(t)
	a.must("lab", "up", "pg")
	call := exec.Command(filepath.Join(bin, "netemctl"), "probe", "pg", "--target", "pg", "--mode", "query", "--pool", "1", "--concurrency", "1",
		"--pace", "20ms", "--timeout", "1s", "--duration", "12s", "-o", "json", "--socket", a.socket)
	done := make(chan result, 1)
	go func() { done <- run(t, call) }()
	time.Sleep(4 * time.Second) // the pool's connection is made, and has answered
	a.must("partition", "--target", "pg", "--direction", "both")
	time.Sleep(3 * time.Second)
	before := probe.Now()
	a.must("clear", "--target", "pg")
	after := probe.Now()

	r := <-done
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.stderr)
	}
	s := data[probe.Summary](t, r, "probe")
	if s.Outages == nil || s.Outages.Count != 1 {
		t.Fatalf("outages %+v, want one; %d of %d calls succeeded", s.Outages, s.OK, s.Count)
	}
	o := s.Outages.List[0]
	if o.Failed < 2 || o.Kept != 1 {
		t.Errorf("%d calls failed, %d on a kept connection; want several, and 1", o.Failed, o.Kept)
	}
	if o.Network == nil || o.Success == nil {
		t.Fatalf("%+v, want both ends of the outage", o)
	}
	t.Logf("%d calls failed, %d on a kept connection, %v; the network answered after %.0f ms, a query after %.0f ms", o.Failed, o.Kept, s.Errors, *o.Network, *o.Success)
	answered := o.StartNS + int64(*o.Network*float64(time.Millisecond))
	if answered < before {
		t.Errorf("the network answered %v before the partition ended", time.Duration(before-answered))
	}
	// the next question comes 50 ms later; what is above that is the machine's
	if late := time.Duration(answered - after); late > 2*time.Second {
		t.Errorf("the network answered %v after the partition's end", late)
	}
	if *o.Success < *o.Network {
		t.Errorf("a call succeeded %v ms after the beginning, and the network answered after %v", *o.Success, *o.Network)
	}
	if f := s.Failed[probe.Timeout]; f.Count != s.Errors[probe.Timeout] || f.P50 == nil || *f.P50 < 900 {
		t.Errorf("failed calls %+v, want their times, of a budget of 1 s", s.Failed)
	}
}
