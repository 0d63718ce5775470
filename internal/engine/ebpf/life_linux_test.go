package ebpf

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"netemd/internal/child"
	"netemd/internal/fault"
	"netemd/internal/target"
	"netemd/qdisc"
)

func init() { child.Register("ebpf-life", live) }

// live is a process with an engine that obeys one word a line, read or panic, and closes
// it at the end of its input. It answers in a line, and says to standard error what the engine logs.
func live([]string) int {
	in := bufio.NewScanner(os.Stdin)
	in.Scan()
	var o order
	if err := json.Unmarshal(in.Bytes(), &o); err != nil {
		fmt.Println(err)
		return 1
	}
	ctx := context.Background()
	e, err := New(Config{Clsact: o.Clsact, Log: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	end := now() + int64(o.Lifetime)
	if err == nil {
		err = e.Set(ctx, o.Place, o.Netem, time.Now().Add(o.Lifetime))
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready", end)
	for in.Scan() {
		switch in.Text() {
		case "read":
			st, err := e.Read(ctx, o.Place)
			if err != nil {
				fmt.Println(err)
				return 1
			}
			_ = json.NewEncoder(os.Stdout).Encode(st)
		case "panic":
			fmt.Println("now")
			go panic("as asked")
			select {}
		}
	}
	if err := e.Close(); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// life is such a process.
type life struct {
	t   *testing.T
	cmd *exec.Cmd
	ask func(string)
	out *bufio.Reader
	log *locked
	// deadline is CLOCK_MONOTONIC in ns, a moment early.
	deadline int64
}

// locked is a buffer for two.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newLife(t *testing.T, o order) *life {
	t.Helper()
	l := &life{t: t, cmd: exec.Command("/proc/self/exe", child.Args("ebpf-life")...), log: &locked{}}
	l.cmd.Stderr = l.log
	in, err := l.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := l.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.end(syscall.SIGKILL) })
	l.out = bufio.NewReader(out)
	l.ask = func(word string) { fmt.Fprintln(in, word) }
	if err := json.NewEncoder(in).Encode(o); err != nil {
		t.Fatal(err)
	}
	return l
}

// line is the process's next word.
func (l *life) line() string {
	l.t.Helper()
	s, err := l.out.ReadString('\n')
	if err != nil {
		l.t.Fatalf("read from the process: %q, %v; it logged: %s", s, err, l.log)
	}
	return strings.TrimSpace(s)
}

func (l *life) ready() *life {
	l.t.Helper()
	s := l.line()
	if _, err := fmt.Sscanf(s, "ready %d", &l.deadline); err != nil {
		l.t.Fatalf("the process said %q", s)
	}
	return l
}

func (l *life) end(sig syscall.Signal) {
	_ = l.cmd.Process.Signal(sig)
	_ = l.cmd.Wait()
}

func (l *life) read() (st fault.Status) {
	l.t.Helper()
	l.ask("read")
	s := l.line()
	if err := json.Unmarshal([]byte(s), &st); err != nil {
		l.t.Fatalf("%q: %v", s, err)
	}
	return st
}

// brief says that a virtual machine is to run only a part of the combinations.
func brief() bool { return inVM && testing.Short() }

// deaths are how a process can fail.
var deaths = []struct {
	name string
	kill func(*life)
}{
	{"SIGKILL", func(l *life) { _ = l.cmd.Process.Kill() }},
	{"SIGSTOP", func(l *life) { _ = l.cmd.Process.Signal(syscall.SIGSTOP) }},
	{"panic", func(l *life) { l.ask("panic"); l.line() }},
}

// Whatever becomes of the process, 100 ms later everything arrives, in order and
// without a delay, while packets are sent all the time beside a bulk of TCP.
func TestTrafficIsWholeAgain(t *testing.T) {
	modes := []struct {
		name string
		n    qdisc.Netem
	}{
		{"drop", qdisc.Netem{Loss: 60, Seed: 1}},
		{"whole", qdisc.Netem{Delay: 30 * ms}},
		{"frames", qdisc.Netem{Delay: 30 * ms, Loss: 40, Reorder: 20, Seed: 1}},
	}
	for i, mode := range modes {
		for k, death := range deaths {
			if brief() && i != k {
				continue
			}
			chosen, turn := (i*len(deaths)+k)%4, 0
			// The combinations take turns; the long run has all.
			for _, hook := range []target.Hook{target.Egress, target.Ingress} {
				for _, legacy := range []bool{false, true} {
					if turn++; turn-1 != chosen && os.Getenv("NETEMD_TEST_LONG") != "1" {
						continue
					}
					t.Run(fmt.Sprintf("%s %s %s clsact %t", mode.name, death.name, hook, legacy), func(t *testing.T) {
						l := newLab(t)
						p := l.at(t, map[target.Hook]string{target.Egress: l.client, target.Ingress: l.server}[hook], hook)
						f := l.newFlow(t, client4, server4, 0, port)
						before := l.links(t, p.Namespace)
						client, peer := l.connect(t, server4)
						proc := newLife(t, order{Place: p, Netem: mode.n, Lifetime: time.Minute, Clsact: legacy}).ready()
						stop := make(chan struct{})
						go func() { // load
							b := make([]byte, 64<<10)
							if inVM {
								b = b[:4<<10]
							}
							for {
								select {
								case <-stop:
									return
								default:
								}
								_ = client.SetWriteDeadline(time.Now().Add(20 * ms))
								_, _ = client.Write(b)
								time.Sleep(slower(2 * ms))
							}
						}()
						go func() {
							b := make([]byte, 1<<20)
							for {
								if _, err := peer.Read(b); err != nil {
									return
								}
							}
						}()
						defer close(stop)
						f.send(200, 64, ms)
						death.kill(proc)
						at := now()
						f.send(400, 64, ms)
						judge(t, f, at, slower(100*ms))
						if death.name == "SIGSTOP" {
							return
						}
						_ = proc.cmd.Wait()
						until(t, "no device is left", slower(time.Second), func() bool { return l.links(t, p.Namespace) == before })
						if removed, err := sweptIn(p.Namespace); err != nil || legacy && len(removed) == 0 {
							t.Errorf("sweep: %q, %v", removed, err)
						}
						if kinds, count := l.filters(t, p); kinds != "noqueue " || count > 0 {
							t.Errorf("left: %q with %d filters", kinds, count)
						}
					})
				}
			}
		}
	}
}

// judge says what became of f's packets around the failure at at, and that those sent
// after limit all arrived at once and in order.
func judge(t *testing.T, f *stream, at int64, limit time.Duration) {
	t.Helper()
	got := f.drain(50 * ms)
	arrived := make([]bool, f.next)
	last, reordered := uint64(0), 0
	var lastBad int64
	for _, a := range got {
		arrived[a.number] = true
		if a.number < last {
			reordered++
			lastBad = max(lastBad, a.sent)
		}
		last = max(last, a.number)
		if a.delay() > slower(25*ms) && a.sent > at {
			lastBad = max(lastBad, a.sent)
		}
	}
	lost := 0
	for n, here := range arrived {
		if !here {
			lost++
			lastBad = max(lastBad, f.sent[n])
		}
	}
	t.Logf("of %d packets %d did not arrive and %d came late of their order; the last of those was sent %s after the failure",
		f.next, lost, reordered, time.Duration(max(0, lastBad-at)).Round(ms))
	if lastBad > at+int64(limit) || len(got) == 0 || last != f.next-1 {
		t.Errorf("not whole after %s: the last harm was %s after the failure; the last that arrived is %d of %d",
			limit, time.Duration(lastBad-at), last, f.next)
	}
}

// What a stopped process finds when it goes on is sent, or dropped on purpose if it is
// too old; all of it is counted, and said. A deadline that passed meanwhile holds.
func TestBacklogIsCounted(t *testing.T) {
	for _, hook := range []target.Hook{target.Egress, target.Ingress} {
		for _, long := range []bool{false, true} {
			if os.Getenv("NETEMD_TEST_LONG") != "1" && long == (hook == target.Ingress) {
				continue
			}
			t.Run(fmt.Sprintf("%s long %t", hook, long), func(t *testing.T) {
				l := newLab(t)
				p := onPort(l.at(t, map[target.Hook]string{target.Egress: l.client, target.Ingress: l.server}[hook], hook))
				f := l.newFlow(t, client4, server4, 0, port)
				proc := newLife(t, order{Place: p, Netem: qdisc.Netem{Delay: 20 * ms}, Lifetime: time.Minute}).ready()
				f.send(100, 64, ms)
				_ = proc.cmd.Process.Signal(syscall.SIGSTOP)
				for stopped := now(); now()-stopped < int64(300*ms); {
					f.send(1, 64, ms)
				}
				if long {
					time.Sleep(lateLimit + 200*ms)
				}
				_ = proc.cmd.Process.Signal(syscall.SIGCONT)
				time.Sleep(slower(100 * ms))
				f.send(100, 64, ms)
				got := f.drain(100 * ms)
				late := 0
				for _, a := range got {
					if a.delay() > lateLimit+slower(100*ms) {
						late++
					}
				}
				st := proc.read()
				c := st.Counters
				t.Logf("of %d packets %d arrived: %+v", f.next, len(got), c)
				if c.Seen != f.next || len(got) != int(c.Seen-c.Late-c.Lost) || c.Opened == 0 || late > 0 || st.Queued > 0 {
					t.Errorf("of %d packets %d arrived, %d late: %+v", f.next, len(got), late, st)
				}
				if long && c.Late == 0 || !long && c.Late > 0 || c.Overflow > 0 {
					t.Errorf("dropped %d of the backlog, %d by a full queue", c.Late, c.Overflow)
				}
				if !strings.Contains(proc.log.String(), "stood still") {
					t.Errorf("it logged %q", proc.log)
				}
			})
		}
	}
}

// The deadline passes while the process is stopped: the fault ends on time, and not
// only because nobody beats.
func TestDeadlineOnTime(t *testing.T) {
	for mode, n := range map[string]qdisc.Netem{"drop": {Loss: 100}, "queue": {Loss: 100, Delay: ms}} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t)
			f := l.newFlow(t, client4, server4, 0, port)
			lifetime := slower(300 * ms)
			proc := newLife(t, order{Place: onPort(l.place), Netem: n, Lifetime: lifetime}).ready()
			end := proc.deadline
			// Stopped just before it, so that the last beat is still fresh.
			time.Sleep(time.Duration(end-now()) - 20*ms)
			_ = proc.cmd.Process.Signal(syscall.SIGSTOP)
			f.send(200, 64, ms)
			_ = proc.cmd.Process.Signal(syscall.SIGCONT)
			f.send(100, 64, ms)
			got := map[uint64]bool{}
			early, first := 0, int64(1<<62)
			for _, a := range f.drain(50 * ms) {
				got[a.number] = true
				first = min(first, a.sent)
			}
			t.Logf("%d of %d arrived, the first was sent %s after the deadline", len(got), f.next, time.Duration(first-end))
			for n := f.next - 100; n < f.next; n++ { // after it went on
				if !got[n] {
					early++
				}
			}
			if early > 0 || first > end+int64(slower(50*ms)) {
				t.Errorf("%d of the last 100 are missing; the first came %s after the deadline", early, time.Duration(first-end))
			}
		})
	}
}

// A new process takes over from a killed one under a fault: it removes what was left,
// says so, and its own fault holds.
func TestUpgradeUnderAFault(t *testing.T) {
	both(t, func(t *testing.T, cfg Config) {
		for _, hook := range []target.Hook{target.Egress, target.Ingress} {
			if brief() && cfg.Clsact == (hook == target.Egress) {
				continue
			}
			t.Run(string(hook), func(t *testing.T) {
				l := newLab(t)
				p := l.at(t, map[target.Hook]string{target.Egress: l.client, target.Ingress: l.server}[hook], hook)
				f := l.newFlow(t, client4, server4, 0, port)
				before := l.links(t, p.Namespace)
				old := newLife(t, order{Place: p, Netem: qdisc.Netem{Delay: 200 * ms}, Lifetime: time.Minute, Clsact: cfg.Clsact}).ready()
				f.send(20, 64, ms)
				old.end(syscall.SIGKILL)
				removed, err := sweptIn(p.Namespace)
				if err != nil {
					t.Fatal(err)
				}
				if said := strings.Join(removed, ""); cfg.Clsact != strings.Contains(said, "filter netemd-") || cfg.Clsact && !strings.Contains(said, "veth0") {
					t.Errorf("it removed %q", removed)
				}
				f.drain(20 * ms)
				next := newLife(t, order{Place: onPort(p), Netem: qdisc.Netem{Delay: 20 * ms}, Lifetime: time.Minute, Clsact: cfg.Clsact}).ready()
				f.send(50, 64, ms)
				got := f.collect(50)
				if c := next.read().Counters; len(got) != 50 || c.Opened == 0 && least(got) < 20*ms || quick(got) > slower(100*ms) {
					t.Errorf("%d of 50 arrived, from %s; %+v", len(got), least(got), c)
				}
				next.end(syscall.SIGKILL)
				if _, err := sweptIn(p.Namespace); err != nil {
					t.Fatal(err)
				}
				until(t, "no device is left", slower(time.Second), func() bool { return l.links(t, p.Namespace) == before })
				if kinds, count := l.filters(t, p); kinds != "noqueue " || count > 0 {
					t.Errorf("left: %q with %d filters", kinds, count)
				}
			})
		}
	})
}
