package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"netemd/internal/client"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/lab/labfile"
	"netemd/internal/target"
	"netemd/qdisc"
)

// seedEnv repeats a run's random choices; when a machine is elsewhere by then, only nearly.
const seedEnv = "NETEMD_TEST_SEED"

// TestCrashAtRandom kills an agent at random moments, while packets pass and clients make,
// change and end faults, and looks at what is left after the next start, or a cleanup:
// nothing.
func TestCrashAtRandom(t *testing.T) {
	g := prepare(t)
	dir, err := fragileProgram()
	if err != nil {
		t.Fatal(err)
	}
	before := objects()
	seed := uint64(time.Now().UnixNano())
	if text := os.Getenv(seedEnv); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d", seedEnv, seed)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer load.Wait()
	defer cancel()
	g.traffic(ctx, &load)
	for k, name := range tried() {
		t.Run(name, func(t *testing.T) {
			g := g.of(t)
			v := newVictim(t, home{program: filepath.Join(dir, "netemd")})
			for i := range moments() {
				c := chaos{victim: v, g: g, engine: fault.Engine(name), rand: rand.New(rand.NewPCG(seed, uint64(k<<32+i)))}
				c.labs = long() && i%10 == 9
				what := c.live()
				t.Logf("%d: %s", i, what)
				if !c.settles(what, i%2 == 0) {
					return // the next would be judged by what this one left
				}
			}
		})
	}
	cancel()
	load.Wait()
	unheld(t, before)
}

// moments is how often an agent is killed, with each engine.
func moments() int {
	switch {
	case os.Getenv("NETEMD_TEST_MOMENTS") != "":
		n, _ := strconv.Atoi(os.Getenv("NETEMD_TEST_MOMENTS"))
		return n
	case long():
		return 200
	case slow():
		return 4
	}
	return 4
}

// chaos is a life with clients that do anything.
type chaos struct {
	*victim
	g      *ground
	engine fault.Engine
	rand   *rand.Rand
}

// live lives until a random moment, from the start of the process or, mostly, from when it
// answers. It says which.
func (c *chaos) live() (what string) {
	span := 500 * time.Millisecond
	switch {
	case slow():
		span = 5 * time.Second
	case c.labs:
		span = 4 * time.Second
	}
	moment := time.Duration(c.rand.Int64N(int64(span)))
	if c.rand.IntN(5) == 0 {
		c.launch("")
		time.AfterFunc(moment, func() { _ = c.cmd.Process.Kill() })
		c.connect()
		c.kill()
		return fmt.Sprintf("killed %v after its start", moment)
	}
	c.start("")
	ctx, cancel := context.WithCancel(c.ctx())
	var clients sync.WaitGroup
	for range 2 {
		own := rand.New(rand.NewPCG(c.rand.Uint64(), 1))
		clients.Go(func() { c.act(ctx, own) })
	}
	if c.labs {
		clients.Go(func() { c.lab(ctx) })
	}
	time.Sleep(moment)
	_ = c.cmd.Process.Kill()
	<-c.ended
	cancel()
	clients.Wait()
	c.release()
	return fmt.Sprintf("killed %v after it answered", moment)
}

// settles recovers, and reports whether all is as it was.
func (c *chaos) settles(what string, restart bool) bool {
	c.t.Helper()
	log := c.said()
	c.recover(restart, "")
	c.g.same(c.t, what, c.victim)
	if c.t.Failed() {
		c.t.Logf("before that it said:\n%s", log)
	}
	return !c.t.Failed()
}

// act does one random thing after the other. What is refused is no matter.
func (c *chaos) act(ctx context.Context, r *rand.Rand) {
	to, err := client.Open(client.Endpoint{Socket: filepath.Join(c.stateDir, "netemd.sock")})
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	for ctx.Err() == nil {
		id := ""
		if all, _ := to.List(ctx); len(all) > 0 {
			id = all[r.IntN(len(all))].ID
		}
		switch what := r.IntN(10); {
		case what < 5 || id == "":
			_, _ = to.Apply(ctx, c.random(r))
		case what == 5:
			delay, loss := time.Duration(r.IntN(30))*time.Millisecond, qdisc.Percent(r.IntN(100))
			_, _ = to.Change(ctx, id, qdisc.Patch{Delay: &delay, Loss: &loss})
		case what == 6:
			_, _ = to.Renew(ctx, id, time.Second+time.Duration(r.IntN(2000))*time.Millisecond)
		case what == 7:
			_, _ = to.Clear(ctx, fault.Selector{All: true})
		case what == 8:
			_, _ = to.Clear(ctx, fault.Selector{ID: id})
		default:
			if h, err := to.Hold(ctx, c.random(r), nil); err == nil && r.IntN(2) == 0 {
				_, _ = h.Release(ctx)
			}
		}
	}
}

// random is any fault: an impairment of up to two flows in any direction, or a rule.
func (c *chaos) random(r *rand.Rand) fault.Spec {
	s := fault.Spec{Engine: c.engine, TTL: time.Second + time.Duration(r.IntN(3000))*time.Millisecond, Repair: r.IntN(3) == 0}
	s.Direction = []fault.Direction{fault.To, fault.From, fault.Both}[r.IntN(3)]
	if r.IntN(3) == 0 {
		s.Offload = fault.OffloadOff
	}
	switch r.IntN(6) {
	case 0:
		s.Packet = lossOf(float64(r.IntN(100)))
	case 1:
		s.Packet = delayOf(time.Duration(r.IntN(50)) * time.Millisecond)
	case 2:
		s.Packet = &qdisc.Netem{Loss: 5, Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond, Duplicate: 1}
	case 3:
		s.Packet = &qdisc.Netem{Rate: 1 << 20}
	case 4:
		s.Content, s.Engine = &content.Rule{Kind: content.Data, N: 1 + uint32(r.IntN(3)), Count: 2}, fault.EBPF
	case 5:
		s.Content, s.Engine = &content.Rule{Kind: content.Every, N: 3, Hold: time.Duration(1+r.IntN(50)) * time.Millisecond}, fault.EBPF
	}
	device := []string{"v0", "w0", "w0", "t0", "b0"}[r.IntN(5)]
	s.Selector = &target.Selector{Namespace: c.g.here, Device: device}
	if device == "v0" {
		s.Selector.Peers = [][]string{{thereFour.String()}, {thereOther.String()}, nil}[r.IntN(3)]
	}
	if s.Content != nil {
		s.Selector.Protocol = 6
	}
	return s
}

// lab makes and takes down a lab, with a fault in between.
func (c *chaos) lab(ctx context.Context) {
	for ctx.Err() == nil {
		_, _ = c.client.LabUp(ctx, labfile.Request{Name: "pg"}, nil)
		_, _ = c.client.Apply(ctx, fault.Spec{Target: "pg", Engine: c.engine, Packet: delayOf(time.Millisecond), Direction: fault.Both})
		_, _ = c.client.LabDown(ctx, "pg")
	}
}
