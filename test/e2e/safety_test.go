package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/internal/offload"
	"netemd/internal/target"
)

// TestProtected: what would lock the user out is refused, unless he says that it is
// meant, and then it ends by itself.
func TestProtected(t *testing.T) {
	c := lay(t)
	if r := in(t, c.here, "ip", "route", "add", "default", "via", thereFour.String()); r.code != 0 {
		t.Fatal(r.stderr)
	}
	// Somebody came from there by ssh and started the agent.
	session := func(port int) string { return fmt.Sprintf("%s %d %s 22", thereOther, port, hereFour) }
	a := startAt(t, home{namespace: c.here, env: []string{"SSH_CONNECTION=" + session(50000)}})
	before := c.tree()
	own := func(args ...string) []string { return append(args, "--dev", "v0", "--engine", engine()) }

	const denied = 7
	a.refuses(denied, "--force default-route", own("partition", "--force", "ssh")...)
	a.refuses(denied, "--force ssh", own("partition", "--force", "default-route")...)
	a.refuses(denied, "--force ssh", own("loss", "1%", "--dst", "10.80.0.0/24", "--port", "50000")...)
	// The session of who asks is another one.
	ask := exec.Command(filepath.Join(bin, "netemctl"), append(own("loss", "1%", "--protocol", "tcp", "--port", "50001"), "--socket", a.socket)...)
	ask.Env = append(ask.Environ(), "SSH_CONNECTION="+session(50001))
	if r := run(t, ask); r.code != denied || !strings.Contains(r.stderr, "--force ssh") {
		t.Errorf("the client's ssh session: exit code %d, %q", r.code, r.stderr)
	}
	c.unchanged("after refusals", before)
	// What hits neither is no matter.
	id := a.apply(own("partition", "--protocol", "udp", "--dst", thereOther.String())...)
	a.must("clear", id)

	ttl := 2 * time.Second
	if slow() {
		ttl = 4 * time.Second
	}
	began := time.Now()
	a.apply(own("partition", "--force", "default-route,ssh", "--ttl", ttl.String())...)
	if got := c.pass(1, to(thereFour, 80)); got[0] != 0 && time.Since(began) < ttl {
		t.Error("a forced fault lets packets through")
	}
	time.Sleep(time.Until(began.Add(ttl + time.Second)))
	c.lost("after its time to live", 10, "..", to(thereFour, 80), from(thereFour, 80))
	if t.Failed() {
		t.Logf("list: %s\nthe agent said:\n%s", a.ctl("list").stdout, a.log)
	}
	c.unchanged("after its time to live", before)
}

// features are the offload settings of the cable's devices.
func (c *cable) features() []fault.Offload {
	c.t.Helper()
	found, err := offload.New(filepath.Join(c.t.TempDir(), "none")).Read(c.t.Context(), []target.Place{{Namespace: c.here, Device: "v0"}})
	if err != nil || len(found) != 2 {
		c.t.Fatalf("offload settings of both ends: %+v, %v", found, err)
	}
	return found
}

// testOffload: what a fault has switched off comes back with the last one's end.
func testOffload(t *testing.T, a *agent, c *cable) {
	before, tree := c.features(), c.tree()
	same := func(what string) {
		t.Helper()
		if diff := cmp.Diff(before, c.features()); diff != "" {
			t.Errorf("%s: offload is not as it was (-before +after):\n%s", what, diff)
		}
	}
	off := func(what string) {
		t.Helper()
		for _, o := range c.features() {
			if len(o.Before) > 0 {
				t.Errorf("%s: %s has %q on", what, o.Device, o.Before)
			}
		}
	}
	warned := a.must(c.on("loss", "1%", "--dst", thereFour.String())...)
	if !strings.Contains(warned.stderr, "--offload off") {
		t.Errorf("loss beside segmentation offload, and no warning: %q", warned.stderr)
	}
	same("with a fault that leaves it")
	a.must("clear", "--all")
	first := a.apply(c.on("loss", "1%", "--dst", thereFour.String(), "--offload", "off")...)
	off("one fault")
	second := a.apply(c.on("loss", "1%", "--dst", thereOther.String(), "--offload", "off")...)
	a.must("clear", first)
	off("the second of two")
	a.must("clear", second)
	same("after clear")
	c.unchanged("after clear", tree)
}

// cleanup is what is left to do when the agent was killed.
func (a *agent) cleanup() {
	a.t.Helper()
	r := run(a.t, exec.Command(filepath.Join(bin, "netemd"), "cleanup", "--state-dir", a.stateDir))
	if r.code != 0 {
		a.t.Errorf("cleanup: exit code %d, %s%s", r.code, r.stdout, r.stderr)
	}
}

// TestKilledInAStorm kills the agent, at first with two faults at rest, which then end at
// once but where they went by a clsact; then while two clients apply and clear, on a
// device with a foreign tree, at different moments. After a cleanup all is as it was.
func TestKilledInAStorm(t *testing.T) {
	a, c := start(t), lay(t)
	before, features := c.tree(), c.features()
	kills := 3
	switch {
	case long():
		kills = 25
	case slow():
		kills = 2
	}
	all := []flow{to(thereFour, 80), to(thereOther, 80), from(thereFour, 80), from(thereOther, 80)}
	atRest := "...."
	if engine() == "netem" && !a.has(t, "tcx") {
		atRest = "xxxx"
	}
	for i := range kills {
		if i > 0 {
			a.run()
		}
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		// Both directions, a queue, and offload: the most that there is to undo.
		fault := func(peer string) []string {
			loss := "50%"
			if i == 0 {
				loss = "100%"
			}
			return c.on("apply", "--loss", loss, "--delay", "20ms", "--dst", peer, "--direction", "both", "--offload", "off")
		}
		if i == 0 {
			a.apply(fault(thereFour.String())...)
			a.apply(fault(thereOther.String())...)
			c.lost("at rest", 20, "xxxx", all...)
		} else {
			for k, peer := range []string{thereFour.String(), thereOther.String()} {
				wg.Go(func() {
					for ctx.Err() == nil {
						quietly(a, fault(peer)...)
						if k == 0 {
							quietly(a, "clear", "--all")
						}
					}
				})
			}
			time.Sleep(time.Duration(150+97*i) * time.Millisecond)
			if slow() {
				time.Sleep(2 * time.Second)
			}
		}
		a.kill()
		cancel()
		wg.Wait()
		if i == 0 {
			time.Sleep(100 * time.Millisecond)
			c.lost("killed at rest", 20, atRest, all...)
		}
		a.cleanup()
		c.unchanged(fmt.Sprintf("after kill %d and cleanup", i), before)
		if diff := cmp.Diff(features, c.features()); diff != "" {
			t.Errorf("after kill %d and cleanup: offload is not as it was (-before +after):\n%s", i, diff)
		}
		if i == 0 {
			c.foreign()
			before = c.tree()
		}
	}
	a.run()
	c.lost("in the end", 50, "....", all...)
}

// quietly runs netemctl, whatever comes of it.
func quietly(a *agent, args ...string) {
	_ = exec.Command(filepath.Join(bin, "netemctl"), append(args, "--socket", a.socket)...).Run()
}

// testTwoClientsOnADevice: of clients at the same time each gets its own fault, and
// all are cleared by any of them.
func testTwoClientsOnADevice(t *testing.T, a *agent, c *cable) {
	together := func(commands ...[]string) {
		t.Helper()
		var wg sync.WaitGroup
		results := make([]result, len(commands))
		for i, args := range commands {
			wg.Go(func() { results[i] = a.ctl(args...) })
		}
		wg.Wait()
		for i, r := range results {
			if r.code != 0 {
				t.Errorf("netemctl %s: exit code %d, %s", strings.Join(commands[i], " "), r.code, r.stderr)
			}
		}
	}
	before := c.tree()
	peers := []string{thereFour.String(), thereOther.String(), thereSix.String()}
	together(c.on("partition", "--dst", peers[0]), c.on("partition", "--dst", peers[1]), c.on("partition", "--dst", peers[2]))
	c.lost("three at once", 20, "xxx.", to(thereFour, 80), to(thereOther, 80), to(thereSix, 80), from(thereFour, 80))
	together([]string{"clear", "--all"}, []string{"clear", "--all"})
	c.settle(before)
	c.lost("cleared by two", 20, "...", to(thereFour, 80), to(thereOther, 80), to(thereSix, 80))
}
