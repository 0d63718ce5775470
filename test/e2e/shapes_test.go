package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"netemd/internal/testenv"
	"netemd/probe"
	"netemd/test/twosample"
)

// shape is what a user sees of calls, each figure in the way in which it is compared.
type shape struct {
	// ms are the calls' times.
	ms []float64
	// slow counts those above what a call takes by itself and the probe's threshold.
	slow int
	// causes counts the calls by what held them up the longest: nothing, then as
	// causesOfLoss has them, then all others.
	causes []int
	// again counts the calls by how many segments were sent again until they ended: none to
	// six and more. The machine's own slowness is not in it.
	again []int
}

// causesOfLoss are what 20 % packet loss holds a call up by.
var causesOfLoss = []probe.Cause{probe.SYNRetransmit, probe.TLP, probe.RTO}

// shapeOf gives the shape of calls that take own by themselves.
func shapeOf(calls []probe.Sample, own time.Duration) shape {
	s := shape{causes: make([]int, len(causesOfLoss)+2), again: make([]int, 7)}
	for _, c := range calls {
		s.ms = append(s.ms, float64(c.Duration())/float64(time.Millisecond))
		if c.Duration() > probe.SlowThreshold+own {
			s.slow++
		}
		cause := 0
		if c.Cause != "" && c.Cause != probe.Unknown {
			if cause = 1 + slices.Index(causesOfLoss, c.Cause); cause == 0 {
				cause = len(s.causes) - 1
			}
		}
		s.causes[cause]++
		sent := 0
		for _, e := range c.Events {
			if e.TimeNS <= c.EndNS {
				sent++
			}
		}
		s.again[min(sent, len(s.again)-1)]++
	}
	slices.Sort(s.ms)
	return s
}

func (s shape) quantile(p float64) float64 { return s.ms[int(p*float64(len(s.ms)-1))] }

func (s shape) String() string {
	return fmt.Sprintf("%d calls: p50 %.0f ms, p90 %.0f ms, p99 %.0f ms, %d slow, held up by nothing %d, syn_retransmit %d, tlp %d, rto %d, others %d; sent again 0, 1, ... %v",
		len(s.ms), s.quantile(.5), s.quantile(.9), s.quantile(.99), s.slow, s.causes[0], s.causes[1], s.causes[2], s.causes[3], s.causes[4], s.again)
}

// calls makes n of them, one every pace, while the fault lasts that the rest of the
// command line asks for, if it does.
func (a *agent) calls(n int, pace time.Duration, fault ...string) (calls []probe.Sample) {
	a.t.Helper()
	dir := a.t.TempDir()
	probing := []string{"probe", "pg", "--target", "pg", "-n", fmt.Sprint(n), "--pace", pace.String(), "--concurrency", "24", "--timeout", "60s", "--out", dir, "-o", "json"}
	if len(fault) > 0 {
		probing = append(probing, "--socket", a.socket)
		probing = slices.Concat(fault, []string{"--target", "pg", "--", filepath.Join(bin, "netemctl")}, probing)
	}
	a.must(probing...)
	f, err := os.Open(filepath.Join(dir, "samples.jsonl"))
	if err != nil {
		a.t.Fatal(err)
	}
	defer f.Close()
	for d := json.NewDecoder(f); d.More(); {
		var s probe.Sample
		if err := d.Decode(&s); err != nil {
			a.t.Fatal(err)
		}
		calls = append(calls, s)
	}
	if len(calls) != n {
		a.t.Fatalf("%d samples of %d calls", len(calls), n)
	}
	return calls
}

// TestNetemShapes: 200 calls to PostgreSQL with 20 % packet loss look the same, whichever
// engine loses the packets; and if they did not, the test would tell.
func TestNetemShapes(t *testing.T) {
	testenv.Netem(t)
	a := start(t)
	a.must("lab", "up", "pg")

	// What a call takes by itself, once all is warm. An emulated machine with two
	// processors is kept from its limit by three times that between two calls: at the
	// limit, calls wait for each other, and not for packets.
	alone := shapeOf(a.calls(30, 300*time.Millisecond)[10:], 0)
	own := time.Duration(alone.quantile(.5) * float64(time.Millisecond))
	pace := min(max(3*own, probe.DefaultPace), 600*time.Millisecond)
	t.Logf("a call takes %s, one is made every %s", own, pace)

	// The engines take turns, so that what else the machine does is shared out to both.
	const turns, each = 4, 50
	seen := map[string][]probe.Sample{}
	for turn := range turns {
		order := []string{"netem", "ebpf"}
		if turn%2 == 1 {
			slices.Reverse(order)
		}
		for _, engine := range order {
			seen[engine] = append(seen[engine], a.calls(each, pace, "loss", "20%", "--engine", engine)...)
		}
	}
	netem, ebpf := shapeOf(seen["netem"], own), shapeOf(seen["ebpf"], own)
	none := shapeOf(a.calls(60, pace), own)
	more := shapeOf(a.calls(100, pace, "loss", "40%", "--engine", "ebpf"), own)
	t.Logf("netem, 20 %%: %s", netem)
	t.Logf("ebpf, 20 %%: %s", ebpf)
	t.Logf("no loss: %s", none)
	t.Logf("ebpf, 40 %%: %s", more)

	var f twosample.Family
	slow := func(x, y shape) float64 { return twosample.Proportions(x.slow, len(x.ms), y.slow, len(y.ms)) }
	f.Same("times", twosample.Distributions(netem.ms, ebpf.ms))
	f.Same("slow calls", slow(netem, ebpf))
	f.Same("causes", twosample.Counts(netem.causes, ebpf.causes))
	f.Same("segments sent again", twosample.Counts(netem.again, ebpf.again))
	f.Differ("times without loss", twosample.Distributions(netem.ms, none.ms))
	f.Differ("slow calls without loss", slow(netem, none))
	f.Differ("causes without loss", twosample.Counts(netem.causes, none.causes))
	f.Differ("times with 40 %", twosample.Distributions(netem.ms, more.ms))
	f.Differ("causes with 40 %", twosample.Counts(netem.causes, more.causes))
	f.Differ("segments sent again with 40 %", twosample.Counts(netem.again, more.again))
	f.Judge(t)
}
