package ebpf

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"netemd/internal/child"
	"netemd/internal/content"
	"netemd/internal/target"
)

// Exactly one packet of ten is held by 200 ms or more, and comes after those that were sent
// behind it; the others are not delayed.
func TestHold(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		both(t, func(t *testing.T, cfg Config) {
			l, e := newLab(t), newEngine(t, cfg)
			p := onPort(l.place)
			if hook == target.Ingress {
				p = onPort(l.at(t, l.server, target.Ingress))
			}
			hold := slower(200 * ms)
			for _, way := range []struct{ client, server string }{{client4, server4}, {client6, server6}} {
				if testing.Short() && (way.server == server4) != cfg.Clsact {
					continue
				}
				f := l.newFlow(t, way.client, way.server, 0, port)
				r := content.Rule{Kind: content.Match, Expr: "payload[0] == 3", Count: 1, Hold: hold}
				var got []arrival
				undisturbed(t, func() string {
					clearRule(t, e, p, r)
					rule(t, e, p, r)
					f.next = 0
					f.send(10, 64, ms)
					got = f.collect(10)
					return waited(ruleCounters(t, e, p, r))
				})
				var order []uint64
				for _, a := range got {
					order = append(order, a.number)
					if a.number == 3 {
						if a.delay() < hold || a.delay() > hold+slower(100*ms) {
							t.Errorf("%s: held for %s", hook, a.delay())
						}
					} else if a.delay() > hold/2 {
						t.Errorf("%s: packet %d, which was not chosen, took %s", hook, a.number, a.delay())
					}
				}
				if want := []uint64{0, 1, 2, 4, 5, 6, 7, 8, 9, 3}; !slices.Equal(order, want) {
					t.Errorf("%s: came as %v, want %v", hook, order, want)
				}
				if n := ruleCounters(t, e, p, r); n.Seen != 10 || n.Delayed != 1 || n.Lost != 0 || n.Overflow != 0 {
					t.Errorf("%s: %+v", hook, n)
				}
				if log := ruleLogOf(t, e, p, r); log.Chosen != 1 || len(log.Records) != 1 || log.Records[0].Payload != 64 {
					t.Errorf("%s: %+v", hook, log)
				}
				clearRule(t, e, p, r)
				f.out.Close()
				f.in.Close()
			}
		})
	}
}

// What is held when the rule is cleared leaves when it is due, not before, and with the
// last of it everything of the rule's.
func TestClearWhileHolding(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	before := l.links(t, l.client)
	p := onPort(l.place)
	p.Owned = false
	f := l.newFlow(t, client4, server4, 0, port)
	unit := slower(100 * ms)
	r := content.Rule{Kind: content.Every, N: 1, Count: 2, Hold: 3 * unit}
	undisturbed(t, func() string {
		clearRule(t, e, p, r)
		f.collect(int(f.next)) // what an earlier try held
		f.next = 0
		rule(t, e, p, r)
		f.send(3, 64, ms)
		return waited(ruleCounters(t, e, p, r))
	})
	clearRule(t, e, p, r)
	clearRule(t, e, p, r)
	// The same rule again begins anew beside it, and holds two others.
	rule(t, e, p, r)
	f.send(3, 64, ms)
	second := ruleCounters(t, e, p, r)
	got := f.collect(6)
	if len(got) != 6 {
		t.Fatalf("%d of 6 arrived", len(got))
	}
	for _, a := range got {
		held := a.number%3 < 2
		if held && a.delay() < r.Hold && second.Opened == 0 || !held && a.delay() > 2*unit {
			t.Errorf("packet %d came after %s", a.number, a.delay())
		}
	}
	clearRule(t, e, p, r)
	until(t, "everything to go", 10*unit+slower(2*time.Second), func() bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		return len(e.hooks) == 0 && l.links(t, l.client) == before
	})
}

// Close does not wait for what is due in a minute.
func TestCloseWhileHolding(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	one, two := content.Rule{Kind: content.Every, N: 2, Hold: time.Minute}, content.Rule{Kind: content.Every, N: 3, Hold: time.Minute}
	rule(t, e, p, one)
	rule(t, e, p, two)
	f.send(12, 64, ms)
	clearRule(t, e, p, two)
	start := time.Now()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > drainLimit+slower(2*time.Second) {
		t.Errorf("close took %s", took)
	}
	if got := f.collect(12); len(got) != 12 {
		t.Errorf("%d of 12 arrived", len(got))
	}
}

// The deadline ends a rule; what is set after it begins anew.
func TestRuleDeadline(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.place)
	f := l.newFlow(t, client4, server4, 0, port)
	r := content.Rule{Kind: content.Every, N: 1, Count: 5}
	if err := e.SetContent(ctx, p, r, in(slower(200*ms))); err != nil {
		t.Fatal(err)
	}
	if got := len(missing(f, 3)); got+int(ruleCounters(t, e, p, r).Opened) != 3 {
		t.Errorf("%d of 3 lost", got)
	}
	// The same again moves the deadline and counts on.
	if err := e.SetContent(ctx, p, r, in(slower(400*ms))); err != nil {
		t.Fatal(err)
	}
	if n := ruleCounters(t, e, p, r); n.Seen != 3 {
		t.Errorf("after renewal: %+v", n)
	}
	until(t, "deadline", slower(2*time.Second), func() bool {
		_, inForce, err := e.ReadContent(ctx, p, r)
		return err == nil && !inForce
	})
	if got := missing(f, 20); len(got) != 0 {
		t.Errorf("after the deadline: lost %v", got)
	}
	if log := ruleLogOf(t, e, p, r); log.Chosen == 0 {
		t.Errorf("after the deadline: %+v", log)
	}
	rule(t, e, p, r)
	if n := ruleCounters(t, e, p, r); n.Seen != 0 {
		t.Errorf("set anew: %+v", n)
	}
	if got := len(missing(f, 20)); got+int(ruleCounters(t, e, p, r).Opened) != 5 && got != 5 {
		t.Errorf("set anew: %d of 20 lost, want 5", got)
	}
	if len(e.places) != 1 {
		t.Errorf("%d places", len(e.places))
	}
	if err := e.SetContent(ctx, p, content.Rule{Kind: content.FIN}, in(-time.Second)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a past deadline: %v", err)
	}
}

func TestRuleGone(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		r := content.Rule{Kind: content.Every, N: 1, Hold: ms}
		rule(t, e, l.place, r)
		if out, err := exec.Command("ip", "-n", l.client, "link", "del", "veth0").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for range 2 {
			if _, _, err := e.ReadContent(ctx, l.place, r); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("read: %v", err)
			}
			if err := e.SetContent(ctx, l.place, r, in(time.Minute)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("set: %v", err)
			}
			if err := e.ClearContent(ctx, l.place, r); err != nil {
				t.Errorf("clear: %v", err)
			}
		}
		if _, err := e.ContentLog(ctx, l.place, content.Rule{Kind: content.FIN}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("log of nothing: %v", err)
		}
		if len(e.places) != 0 || len(e.hooks) != 0 {
			t.Errorf("%d places are left, at %d hooks", len(e.places), len(e.hooks))
		}
	})
}

// Rules come and go more often than there are ranks, at an ingress, where the rank is in
// the packet's mark.
func TestManyRules(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := onPort(l.at(t, l.server, target.Ingress))
	stay := content.Rule{Kind: content.Every, N: 1_000_000, Hold: ms}
	rule(t, e, p, stay)
	n := maxMarks + 10
	if testing.Short() {
		n = 20
	}
	for i := range n {
		r := content.Rule{Kind: content.Every, N: uint32(i + 1)}
		rule(t, e, p, r)
		clearRule(t, e, p, r)
	}
	last := content.Rule{Kind: content.Every, N: 2, Hold: ms}
	rule(t, e, p, last)
	f := l.newFlow(t, client4, server4, 0, port)
	f.send(10, 64, ms)
	if got := f.collect(10); len(got) != 10 {
		t.Errorf("%d of 10 arrived", len(got))
	}
	if n := ruleCounters(t, e, p, last); n.Delayed+n.Opened != 5 || n.Seen != 10 {
		t.Errorf("%+v", n)
	}
	// What the last one held, the one behind it sees once.
	if n := ruleCounters(t, e, p, stay); n.Seen != 10 {
		t.Errorf("behind it: %+v", n)
	}
	over := 0
	for _, l := range e.logs {
		if !l.endedAt().IsZero() {
			over++
		}
	}
	if over > logsKept+1 || len(e.ring.logs) != len(e.logs) {
		t.Errorf("%d logs of rules that are over, %d in the ring of %d", over, len(e.ring.logs), len(e.logs))
	}
}

// On loopback a packet is dropped and held like elsewhere; holding IPv4's at ingress is
// refused by name, and leaves nothing.
func TestRuleOnLoopback(t *testing.T) {
	l, e := newLab(t), newEngine(t, Config{})
	p := target.Place{Namespace: l.client, Device: "lo", Index: 1, Hook: target.Egress}
	var in4, out4 *net.UDPConn
	l.in(t, l.client, func() (err error) {
		if in4, err = net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port}); err != nil {
			return err
		}
		out4, err = net.DialUDP("udp", nil, in4.LocalAddr().(*net.UDPAddr))
		return err
	})
	defer in4.Close()
	defer out4.Close()
	p.Match = target.Match{Include: []target.Flow{{Protocol: 17, DestinationPorts: target.Port(port)}}}
	r := content.Rule{Kind: content.Match, Expr: `payload.at(0, "bad")`}
	rule(t, e, p, r)
	for _, s := range []string{"good", "bad", "best"} {
		if _, err := out4.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	b := make([]byte, 10)
	var got []string
	for range 2 {
		_ = in4.SetReadDeadline(time.Now().Add(slower(2 * time.Second)))
		n, err := in4.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b[:n]))
	}
	if want := []string{"good", "best"}; !slices.Equal(got, want) && ruleCounters(t, e, p, r).Opened == 0 {
		t.Errorf("came %q, want %q", got, want)
	}
	clearRule(t, e, p, r)

	r.Hold = 50 * ms
	rule(t, e, p, r)
	start := time.Now()
	for _, s := range []string{"bad", "good"} {
		if _, err := out4.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
	}
	got = nil
	for range 2 {
		_ = in4.SetReadDeadline(time.Now().Add(slower(2 * time.Second)))
		n, err := in4.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b[:n]))
	}
	if n := ruleCounters(t, e, p, r); n.Opened == 0 && (!slices.Equal(got, []string{"good", "bad"}) || time.Since(start) < r.Hold) {
		t.Errorf("came %q after %s: %+v", got, time.Since(start), n)
	}
	clearRule(t, e, p, r)

	p.Hook = target.Ingress
	err := e.SetContent(ctx, p, r, in(time.Minute))
	if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "hold: ") || !strings.Contains(fmt.Sprint(err), "loopback") {
		t.Errorf("hold of IPv4: %v", err)
	}
	if len(e.places) != 0 || l.links(t, l.client) != "lo veth0" {
		t.Errorf("%d places are left, and %s", len(e.places), l.links(t, l.client))
	}
}

// A foreign device is left as it was.
func TestRuleLeavesNothing(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		l, e := newLab(t), newEngine(t, cfg)
		p := l.place
		p.Owned = false
		kinds, n := l.filters(t, p)
		links := l.links(t, l.client)
		for _, r := range []content.Rule{{Kind: content.SYN}, {Kind: content.Data, N: 1}, {Kind: content.FIN, Hold: ms}} {
			rule(t, e, p, r)
			clearRule(t, e, p, r)
		}
		if k, m := l.filters(t, p); k != kinds || m != n || l.links(t, l.client) != links {
			t.Errorf("left %q with %d filters and %s, before %q with %d and %s", k, m, l.links(t, l.client), kinds, n, links)
		}
		if cfg.Clsact {
			return
		}
		l.in(t, l.client, func() error {
			found, err := link.QueryPrograms(link.QueryOptions{Target: p.Index, Attach: ebpf.AttachTCXEgress})
			if err == nil && len(found.Programs) > 0 {
				t.Errorf("%d programs are left", len(found.Programs))
			}
			return err
		})
	})
}

// ruleOrder is what a process with a rule shall do.
type ruleOrder struct {
	Place    target.Place
	Rule     content.Rule
	Lifetime time.Duration
	Clsact   bool
}

func init() { child.Register("ebpf-rule-holder", holdRule) }

// holdRule is a process with an engine, until its standard input ends.
func holdRule([]string) int {
	var o ruleOrder
	if err := json.NewDecoder(os.Stdin).Decode(&o); err != nil {
		fmt.Println(err)
		return 1
	}
	e, err := New(Config{Clsact: o.Clsact})
	if err == nil {
		err = e.SetContent(context.Background(), o.Place, o.Rule, time.Now().Add(o.Lifetime))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// A killed or stopped engine's rule is open within 100 ms, and a stopped one's ends with
// its deadline.
func TestRuleFailsOpen(t *testing.T) {
	signals := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}
	both(t, func(t *testing.T, cfg Config) {
		for _, hold := range []time.Duration{0, time.Minute} {
			if testing.Short() && cfg.Clsact != (hold == 0) {
				continue // half of them
			}
			for name, sig := range signals {
				if testing.Short() && (name == "kill") != (hold == 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s %s", hold, name), func(t *testing.T) {
					l := newLab(t)
					f := l.newFlow(t, client4, server4, 0, port)
					p := onPort(l.place)
					cmd := exec.Command("/proc/self/exe", child.Args("ebpf-rule-holder")...)
					cmd.Stderr = os.Stderr
					stdin, err := cmd.StdinPipe()
					if err != nil {
						t.Fatal(err)
					}
					stdout, err := cmd.StdoutPipe()
					if err != nil {
						t.Fatal(err)
					}
					if err := cmd.Start(); err != nil {
						t.Fatal(err)
					}
					defer func() {
						_ = cmd.Process.Kill()
						_ = cmd.Wait()
					}()
					o := ruleOrder{p, content.Rule{Kind: content.Every, N: 1, Hold: hold}, time.Minute, cfg.Clsact}
					if err := json.NewEncoder(stdin).Encode(o); err != nil {
						t.Fatal(err)
					}
					if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "ready\n" {
						t.Fatalf("%q, %v", line, err)
					}
					f.send(50, 64, ms)
					before := f.drain(10 * ms)
					at := now()
					if err := cmd.Process.Signal(sig); err != nil {
						t.Fatal(err)
					}
					f.send(200, 64, ms)
					got := f.drain(20 * ms)
					if len(got) == 0 || len(before) > 40 {
						t.Fatalf("%d came before, %d after", len(before), len(got))
					}
					open := time.Duration(got[0].sent - at)
					t.Logf("%d of 50 came before; open after %s", len(before), open)
					if open > slower(100*ms) {
						t.Errorf("closed for %s", open)
					}
					if last := got[len(got)-1].number; uint64(len(got)) != last-got[0].number+1 || last != f.next-1 {
						t.Errorf("%d came, from %d to %d of %d", len(got), got[0].number, last, f.next)
					}
				})
			}
		}
	})
}

// While a rule's program is put back before that of somebody else, no packet is counted
// twice.
func TestRuleMoves(t *testing.T) {
	needTCX(t)
	undisturbed(t, func() string {
		l, e := newLab(t), newEngine(t, Config{})
		p := onPort(l.place)
		f := l.newFlow(t, client4, server4, 0, port)
		r := content.Rule{Kind: content.Every, N: 10, Hold: ms}
		rule(t, e, p, r)
		const sent = 2000
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.send(sent, besideSize, 50*time.Microsecond)
		}()
		for range maxMoves {
			newForeign(t, p, link.Head())
			if _, _, err := e.ReadContent(ctx, p, r); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		got := len(f.collect(sent))
		moves := e.places[contentKey(p, r)].prog.(*tcx).moves
		c := ruleCounters(t, e, p, r)
		if said := waited(c); said != "" {
			return said
		}
		if got != sent || moves != maxMoves || c.Seen > sent || c.Seen < sent-3*maxMoves || c.Delayed != c.Seen/10 {
			t.Errorf("%d of %d arrived, moved %d times: %+v", got, sent, moves, c)
		}
		return ""
	})
}
