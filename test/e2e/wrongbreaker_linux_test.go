package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/catalogue"
	"netemd/internal/child"
	"netemd/internal/client"
	"netemd/internal/experiment"
	"netemd/internal/fault"
	"netemd/internal/report"
	"netemd/probe"
	"netemd/probe/http"
	"netemd/probe/load"
)

// homeMade is a circuit breaker as a team wrote it for its own client, around calls that follow
// one another: five failures open it for a second, then one call is let through.
type homeMade struct {
	inner probe.Caller
	// sticks has the branch left out that opens it again when the call that was let through
	// fails: it waits for that call's success for ever.
	sticks bool

	failures       int
	open, halfOpen bool
	until          int64
}

// Call implements probe.Caller.
func (b *homeMade) Call(ctx context.Context, seq int) probe.Sample {
	var events []probe.PolicyEvent
	note := func(event string) {
		events = append(events, probe.PolicyEvent{TimeNS: probe.Now(), Policy: "breaker", Event: event})
	}
	due := b.open && probe.Now() >= b.until
	if (b.open || b.halfOpen) && !due {
		now := probe.Now()
		note("rejected")
		return probe.Sample{Seq: seq, StartNS: now, EndNS: now, Class: probe.Rejected, Error: "the breaker is open", Policy: events}
	}
	if due {
		b.open, b.halfOpen = false, true
		note("half_opened")
	}
	s := b.inner.Call(ctx, seq)
	switch {
	case s.Class == probe.OK:
		if b.halfOpen {
			note("closed")
		}
		b.failures, b.halfOpen = 0, false
	case b.halfOpen && b.sticks:
	default:
		if b.failures++; b.failures >= 5 {
			b.open, b.halfOpen, b.until = true, false, probe.Now()+int64(time.Second)
			note("opened")
		}
	}
	s.Policy = events
	return s
}

// homeMadeChild is the client with the breaker, in the namespace of a lab's client: an order in, a
// sample a line out.
const homeMadeChild = "e2e-home-made-client"

type homeMadeOrder struct {
	Request     probe.Request
	Address     netip.AddrPort
	None, Stuck bool
}

func init() { child.Register(homeMadeChild, func([]string) int { return runHomeMade() }) }

func runHomeMade() int {
	var o homeMadeOrder
	out := json.NewEncoder(os.Stdout)
	err := json.NewDecoder(os.Stdin).Decode(&o)
	if err == nil {
		p := &http.Probe{Address: o.Address}
		var c probe.Caller = p
		if !o.None {
			c = &homeMade{inner: p, sticks: o.Stuck}
		}
		_, err = load.Run(context.Background(), c, o.Request, load.Options{}, func(s probe.Sample) { _ = out.Encode(s) })
		err = errors.Join(err, p.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// homeMadeCaller has that client make the calls of an experiment; of a case without a policy
// there is no breaker.
type homeMadeCaller struct {
	address netip.AddrPort
	sticks  bool
}

// Calls implements experiment.Caller.
func (h homeMadeCaller) Calls(_ context.Context, r probe.Request, policy string, _ []byte, progress func(probe.Progress)) (calls experiment.Calls, err error) {
	calls.Unix = time.Duration(time.Now().UnixNano() - probe.Now())
	p, err := child.Start("netem-echo-client", child.Options{Stderr: os.Stderr}, homeMadeChild)
	if err != nil {
		return calls, err
	}
	defer func() { err = errors.Join(err, p.Wait()) }()
	if err := json.NewEncoder(p.Stdin).Encode(homeMadeOrder{r, h.address, policy == "", h.sticks}); err != nil {
		return calls, err
	}
	lines := bufio.NewScanner(p.Stdout)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var s probe.Sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			return calls, err
		}
		calls.Samples = append(calls.Samples, s)
		progress(probe.Progress{Done: len(calls.Samples)})
	}
	return calls, lines.Err()
}

// agentFaults are the faults of an agent.
type agentFaults struct{ *client.Client }

// Hold implements experiment.Faults.
func (a agentFaults) Hold(ctx context.Context, s fault.Spec, notify func(fault.Event, string)) (experiment.Held, error) {
	h, err := a.Client.Hold(ctx, s, notify)
	if err != nil {
		return nil, err
	}
	return h, nil
}

// TestBreakerThatSticks: a client of one's own takes the place of the calls that netemd makes. The
// experiment passes with its breaker, and fails where that stays half-open for ever.
func TestBreakerThatSticks(t *testing.T) {
	a := start(t)
	a.must("lab", "up", "echo")
	defer a.must("lab", "down", "echo")
	c, err := client.Open(client.Endpoint{Socket: a.socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	found, err := catalogue.Match("http/breaker")
	if err != nil {
		t.Fatal(err)
	}
	plan := found[0].Shortened()
	for sticks, want := range map[bool][]string{
		false: nil,
		true: {
			"events[breaker.opened] >= 2 && events[breaker.closed] == 0 in every repeat of breaker",
			"recovery_ms <= 1500 in every repeat of recovery of breaker",
			"events[breaker.closed] == 1 in every repeat of recovery of breaker",
		},
	} {
		r := experiment.Runner{Plan: plan, Caller: homeMadeCaller{netip.MustParseAddrPort("10.80.0.2:8080"), sticks}, Faults: agentFaults{c}}
		observed, err := r.Run(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		judged := report.Judged(experiment.Judge(plan, observed))
		// What is of the client without a breaker is not about the mistake.
		got := slices.DeleteFunc(unmet(judged), func(condition string) bool { return condition == "ok == 0" })
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("sticks: %v (-want +got):\n%s", sticks, d)
		}
		for _, k := range judged {
			t.Logf("sticks: %v: %s %s %s: %s", sticks, k.Verdict, k.Case, k.Condition, k.Words())
		}
	}
}
