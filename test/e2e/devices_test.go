package e2e

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// engine is the one that this run is about, where one is enough: netem where the run
// was promised it.
func engine() string { return engines()[0] }

// on are the flags that name v0 of the cable.
func (c *cable) on(args ...string) []string {
	return append(args, "--dev", "v0", "--netns", c.here, "--engine", engine())
}

// apply applies a fault and returns its ID.
func (a *agent) apply(args ...string) string {
	a.t.Helper()
	return data[struct {
		ID string `json:"id"`
	}](a.t, a.must(append(args, "-o", "json")...), "fault").ID
}

// unchanged checks that the devices are as they were.
func (c *cable) unchanged(what, before string) {
	c.t.Helper()
	if diff := cmp.Diff(before, c.settle(before)); diff != "" {
		c.t.Errorf("%s: the devices are not as they were (-before +after):\n%s", what, diff)
	}
}

// settle waits until the devices are as they were, for a while, and returns how they
// are: what a cleared fault stood on goes when its queue is empty, and with a clsact the
// device stops for a moment.
func (c *cable) settle(before string) string {
	c.t.Helper()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if now := c.tree(); now == before || time.Now().After(end) {
			return now
		}
	}
}

// refused checks that a command is refused with that exit code, says why in one line,
// with a hint at most, and changes nothing.
func (c *cable) refused(a *agent, code int, want string, args ...string) {
	c.t.Helper()
	before := c.tree()
	a.refuses(code, want, args...)
	c.unchanged("a refused fault", before)
}

// refuses is refused for who looks at the devices himself.
func (a *agent) refuses(code int, want string, args ...string) {
	a.t.Helper()
	r := a.ctl(args...)
	if r.code != code || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") > 2 {
		a.t.Errorf("netemctl %s: exit code %d, %q, want %d and an error with %q in it", strings.Join(args, " "), r.code, r.stderr, code, want)
	}
}

// TestDevices are faults on a device that is not netemd's: one agent and one cable;
// each part begins and ends without a fault, and leaves the device as it was.
func TestDevices(t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+thereFour.String()+" db.example\n"+thereSix.String()+" db.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := lay(t) // first, so that there is a mount for namespaces, and the agent gets its own of it
	a := startAt(t, home{hosts: hosts})
	before := c.tree()
	for _, part := range []struct {
		name string
		test func(*testing.T, *agent, *cable)
		// alike says that it is the same on every kernel, or the engine's own tests have it.
		alike bool
	}{
		{"exclusion", testExclusion, false},
		{"both families", testFamilies, true},
		{"host name", testHostName, true},
		{"two flows", testTwoFlows, false},
		{"foreign tree", testForeignTree, false},
		{"verify", testVerify, false},
		{"offload", testOffload, false},
		{"seed", testSeed, false},
		{"two clients", testTwoClientsOnADevice, true},
	} {
		if part.alike && slow() && !long() {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			a, c := *a, *c
			a.t, c.t = t, t
			t.Cleanup(func() {
				a.must("clear", "--all")
				c.unchanged("after "+part.name, before)
			})
			part.test(t, &a, &c)
		})
	}
}

// testExclusion cuts one address off but for two ports.
func testExclusion(t *testing.T, a *agent, c *cable) {
	flows := []flow{to(thereFour, 22), to(thereFour, 9526), to(thereFour, 80), to(thereOther, 80), from(thereFour, 22), from(thereFour, 80)}
	orders := []string{"22,9526", "9526,22"}
	if slow() && !long() {
		orders = orders[1:]
	}
	for _, ports := range orders {
		id := a.apply(c.on("loss", "100%", "--dst", thereFour.String(), "--exclude-port", ports)...)
		c.lost("without ports "+ports, 100, "..x...", flows...)
		a.must("clear", id)
	}
	a.apply(c.on("loss", "100%", "--dst", thereFour.String(), "--exclude-port", "22,9526", "--direction", "both")...)
	c.lost("both ways", 100, "..x..x", flows...)
}

// testFamilies hits a port whatever the address.
func testFamilies(_ *testing.T, a *agent, c *cable) {
	a.apply(c.on("partition", "--port", "5432")...)
	c.lost("to a port", 100, "xxx..", to(thereFour, 5432), to(thereOther, 5432), to(thereSix, 5432), to(thereFour, 5433), to(thereSix, 5433))
	a.must("clear", "--all")
	a.apply(c.on("partition", "--direction", "ingress", "--protocol", "udp", "--port", "8000-8002,9000")...)
	c.lost("from ports", 100, "xxx..",
		from(thereFour, 8000), from(thereSix, 8002), from(thereFour, 9000), from(thereSix, 8003), to(thereSix, 8000))
}

// testHostName hits every address of a name, and no other.
func testHostName(_ *testing.T, a *agent, c *cable) {
	id := a.apply(c.on("partition", "--dst", "db.example")...)
	c.lost("to a name", 100, "xx.", to(thereFour, 80), to(thereSix, 80), to(thereOther, 80))
	a.must("clear", id)
	a.refuses(1, "nobody.example", c.on("partition", "--dst", "nobody.example")...)
}

// testTwoFlows has two faults on one device, and ends one of them.
func testTwoFlows(t *testing.T, a *agent, c *cable) {
	first := a.apply(c.on("apply", "--tc", "delay 60ms loss 30%", "--dst", thereFour.String())...)
	a.apply(c.on("partition", "--dst", thereOther.String())...)
	const n = 400
	got := c.send(n, to(thereFour, 80), to(thereOther, 80), to(thereSix, 80))
	// 4.5 standard deviations are passed once in 150,000 runs.
	if lost := float64(n - len(got[0].numbers)); math.Abs(lost-0.3*n) > 4.5*math.Sqrt(n*0.3*0.7) || got[0].fastest < 60*time.Millisecond {
		t.Errorf("delay 60ms and loss 30%%: %v of %d lost, the fastest took %v", lost, n, got[0].fastest)
	}
	if len(got[1].numbers) != 0 || len(got[2].numbers) != n {
		t.Errorf("%d of %d arrived in a partition, %d of an address that is not meant", len(got[1].numbers), n, len(got[2].numbers))
	}
	c.refused(a, 1, "conflict", c.on("loss", "5%", "--dst", "10.80.0.0/24")...)
	a.must("clear", first)
	c.lost("after the end of the first of two", 100, ".x.", to(thereFour, 80), to(thereOther, 80), to(thereSix, 80))
}

// foreign gives v0 a root, a clsact and filters that are not netemd's.
func (c *cable) foreign() {
	c.t.Helper()
	for _, args := range []string{
		"qdisc add dev v0 root handle 77: htb default 1",
		"class add dev v0 parent 77: classid 77:1 htb rate 1gbit quantum 1514",
		"class add dev v0 parent 77: classid 77:2 htb rate 10mbit",
		"filter add dev v0 parent 77: protocol ip prio 3 u32 match ip dst 192.0.2.1/32 flowid 77:2",
		"qdisc add dev v0 clsact",
		"filter add dev v0 egress protocol ip prio 1 u32 match ip dst 192.0.2.9/32 flowid 1:1",
		"filter add dev v0 ingress protocol ipv6 prio 49152 u32 match ip6 src 2001:db8::/32 flowid 1:1",
	} {
		c.tc(args)
	}
}

// native takes away what foreign gave.
func (c *cable) native() {
	c.t.Helper()
	c.tc("qdisc del dev v0 root")
	c.tc("qdisc del dev v0 clsact")
}

// testForeignTree: what others made on the device is there as before, during a fault
// and after it; where the fault has no place beside it, it is refused.
func testForeignTree(t *testing.T, a *agent, c *cable) {
	c.foreign()
	before := c.tree()
	directions := []string{"egress", "ingress", "both"}
	if slow() && !long() {
		directions = directions[2:]
	}
	for _, direction := range directions {
		id := a.apply(c.on("partition", "--dst", thereFour.String(), "--direction", direction)...)
		marks := map[string]string{"egress": "x..", "ingress": ".x.", "both": "xx."}[direction]
		c.lost(direction, 100, marks, to(thereFour, 80), from(thereFour, 80), to(thereOther, 80))
		if during := in(c.t, c.here, "tc", "qdisc", "show", "dev", "v0").stdout; !strings.Contains(during, "qdisc htb 77: root") {
			c.t.Errorf("during a fault the root is another:\n%s", during)
		}
		a.must("clear", id)
		c.unchanged("after "+direction, before)
	}
	c.native()
	if engine() != "netem" {
		return
	}
	c.tc("qdisc add dev v0 handle ffff: ingress")
	defer c.tc("qdisc del dev v0 ingress")
	before = c.tree()
	egress := c.on("partition", "--dst", thereFour.String())
	if !a.has(t, "tcx") { // and only a clsact has a place for egress
		c.refused(a, 1, "ingress", egress...)
		return
	}
	id := a.apply(egress...)
	c.lost("beside an ingress qdisc", 100, "x..", to(thereFour, 80), from(thereFour, 80), to(thereOther, 80))
	a.must("clear", id)
	c.unchanged("after egress beside an ingress qdisc", before)
}

// has reports whether the agent found that its kernel can do that.
func (a *agent) has(t *testing.T, feature string) bool {
	t.Helper()
	for _, f := range data[struct {
		Features []struct {
			Name  string `json:"name"`
			State string `json:"state"`
		} `json:"features"`
	}](t, a.must("doctor", "--engine", "auto", "-o", "json"), "doctor").Features {
		if f.Name == feature {
			return f.State == "yes"
		}
	}
	t.Fatalf("doctor says nothing of %s", feature)
	return false
}

// testVerify holds a verdict to faults that do what was asked for, and to one that
// cannot.
func testVerify(t *testing.T, a *agent, c *cable) {
	count := []string{"-n", "2000", "--rate", "1000"}
	switch {
	case long():
		count[1] = "100000"
	case slow():
		count[1] = "1000"
	}
	verify := func(id string) (result, verification) {
		r := a.ctl(append([]string{"verify", id, "-o", "json"}, count...)...)
		return r, data[verification](t, r, "verification")
	}
	id := a.apply(c.on("loss", "20%", "--dst", thereFour.String())...)
	if r, v := verify(id); r.code != 0 || v.Verdict != "pass" {
		t.Errorf("loss 20%%: exit code %d, verdict %s: %s%s", r.code, v.Verdict, r.stdout, r.stderr)
	}
	a.must("clear", id)
	// At 1,000 packets a second 100 are under way in 100 ms, and 10 have room.
	id = a.apply(c.on("delay", "100ms", "--limit", "10", "--dst", thereFour.String())...)
	r, v := verify(id)
	if r.code != 3 || v.Verdict != "fail" || !strings.Contains(v.Reason, "overflow") && !strings.Contains(v.Reason, "full queue") {
		t.Errorf("a limit of 10 packets: exit code %d, verdict %s, reason %q: %s", r.code, v.Verdict, v.Reason, r.stderr)
	}
	if len(v.Places) != 1 || v.Places[0].Overflow == nil || *v.Places[0].Overflow == 0 {
		t.Errorf("a limit of 10 packets: %+v, want packets lost to overflow", v.Places)
	}
	stats := data[struct {
		Faults []struct {
			Lost     *uint64 `json:"lost_packets"`
			Overflow *uint64 `json:"overflow_packets"`
		} `json:"faults"`
	}](t, a.must("stats", id, "-o", "json"), "stats").Faults
	if len(stats) != 1 || stats[0].Overflow == nil || *stats[0].Overflow == 0 || stats[0].Lost != nil && *stats[0].Lost != 0 {
		t.Errorf("stats: %+v, want overflow and no loss", stats)
	}
}

// verification has the fields of a verification's data that the tests look at.
type verification struct {
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	Places  []struct {
		Overflow *uint64 `json:"overflow_packets"`
	} `json:"places"`
}

// slow reports whether this machine is emulated.
func slow() bool { return os.Getenv("NETEMD_TEST_VM") != "" }

// long reports whether the full counts are wanted.
func long() bool { return os.Getenv("NETEMD_TEST_LONG") != "" }

// testSeed: with one seed the same packets are lost again, with another others. A
// kernel that takes none is not said to repeat anything.
func testSeed(t *testing.T, a *agent, c *cable) {
	lossy := func(seed string) []string {
		return c.on("loss", "30%", "--seed", seed, "--dst", thereFour.String())
	}
	if engine() == "netem" && os.Getenv("NETEMD_TEST_KERNEL") == "6.1" {
		c.refused(a, 6, "takes no seed", lossy("42")...)
		return
	}
	draw := func(seed string) []uint32 {
		id := a.apply(lossy(seed)...)
		defer a.must("clear", id)
		return c.send(200, to(thereFour, 80))[0].numbers
	}
	first, again, other := draw("42"), draw("42"), draw("43")
	if len(first) == 200 || !slices.Equal(first, again) {
		t.Errorf("the numbers that arrived with one seed: %v, then %v", first, again)
	}
	if slices.Equal(first, other) {
		t.Errorf("two seeds lose the same: %v", first)
	}
}
