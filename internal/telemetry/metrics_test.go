package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"netemd/internal/config"
	"netemd/internal/content"
	"netemd/internal/fault"
	"netemd/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// logged is a log that tests read.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// open makes a Telemetry that ends with the test.
func open(t *testing.T, cfg Config, l *logged) *Telemetry {
	t.Helper()
	tel, err := New(cfg, slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := tel.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tel
}

// metricsAt is a configuration with metrics on a free port of loopback.
func metricsAt(c Config) Config {
	c.Metrics = config.Metrics{Listen: "127.0.0.1:0"}
	return c
}

// read returns what a path of the port says.
func read(t *testing.T, tel *Telemetry, path string) (string, int) {
	t.Helper()
	c := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := c.Get("http://" + tel.Addr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), r.StatusCode
}

// says checks that the metrics have these lines.
func says(t *testing.T, tel *Telemetry, lines ...string) {
	t.Helper()
	text, code := read(t, tel, Path)
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			name, _, _ := strings.Cut(l, "{")
			name, _, _ = strings.Cut(name, " ")
			var have []string
			for h := range strings.Lines(text) {
				if strings.HasPrefix(h, name) {
					have = append(have, strings.TrimSpace(h))
				}
			}
			t.Errorf("no %q in:\n%s", l, strings.Join(have, "\n"))
		}
	}
}

func TestOffUntilConfigured(t *testing.T) {
	var l logged
	tel := open(t, Config{Collect: func() []fault.Fault { t.Error("faults were asked for"); return nil }}, &l)
	for name, x := range map[string]*Telemetry{"empty": tel, "nil": nil} {
		x.Start()
		x.Observe(fault.Event{Kind: "applied"})
		if x.Addr() != nil || len(x.ServerOptions()) != 0 {
			t.Errorf("%s: address %v, %d server options, want none", name, x.Addr(), len(x.ServerOptions()))
		}
		if err := x.Close(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.String() != "" {
		t.Errorf("logged %q", l.String())
	}
}

func TestListen(t *testing.T) {
	var l logged
	tel := open(t, metricsAt(Config{}), &l)
	if strings.Contains(l.String(), "WARN") {
		t.Errorf("loopback is warned of: %s", &l)
	}
	if _, err := New(Config{Metrics: config.Metrics{Listen: tel.Addr().String()}}, slog.New(slog.DiscardHandler)); err == nil || !strings.HasPrefix(err.Error(), "metrics: listen") {
		t.Errorf("a port that is in use: %v", err)
	}
	open(t, Config{Metrics: config.Metrics{Listen: "0.0.0.0:0"}}, &l)
	if !strings.Contains(l.String(), "can be read from other hosts") {
		t.Errorf("a port on every address is not told of: %s", &l)
	}
	tel.Start()
	if text, code := read(t, tel, "/"); code != http.StatusNotFound {
		t.Errorf("/: %d %s", code, text)
	}
	r, err := http.Post("http://"+tel.Addr().String()+Path, "text/plain", strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", r.StatusCode)
	}
	http.DefaultClient.CloseIdleConnections()
}

// One who connects and says nothing does not hold up the end.
func TestCloseWithAReaderThatHangs(t *testing.T) {
	var l logged
	tel := open(t, metricsAt(Config{}), &l)
	tel.Start()
	c, err := net.Dial("tcp", tel.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Write([]byte("GET /metrics HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := tel.Close(t.Context()); err != nil || time.Since(begun) > 5*closeTime {
		t.Errorf("%v after %v", err, time.Since(begun))
	}
	if _, err := net.Dial("tcp", tel.Addr().String()); err == nil {
		t.Error("the port is open still")
	}
}

func packet(id string, e fault.Engine, c fault.Counters) fault.Fault {
	return fault.Fault{ID: id, State: fault.Active, Engine: e, Spec: fault.Spec{Target: "secret-target", Owner: "uid 7 (secret-owner)"}, Counters: c}
}

func TestMetricsOfFaults(t *testing.T) {
	held := []fault.Fault{
		packet("abc1", fault.Netem, fault.Counters{Seen: 10, Lost: 2}),
		packet("abc2", fault.EBPF, fault.Counters{Seen: 7, Overflow: 1}),
		packet("abc3", fault.EBPF, fault.Counters{Seen: 5, Delayed: 5}),
		{ID: "abc4", State: fault.Active, Engine: fault.Stream, Spec: fault.Spec{Toxics: []fault.Toxic{{}}}},
	}
	held[1].State, held[1].Queued = fault.Drifted, 3
	held[2].Spec.Content, held[2].Token = &content.Rule{}, 9
	tel := open(t, metricsAt(Config{Collect: func() []fault.Fault { return held }, Waiting: func() int { return 4 }}), &logged{})
	tel.Start()
	says(t, tel, // before anything happened
		`netemd_fault_events_total{engine="netem",event="lost",kind="packet"} 0`,
		`netemd_packets_total{engine="ebpf",kind="packet",outcome="opened"} 0`,
	)
	for _, e := range []fault.Event{{Kind: "applied", Fault: held[0]}, {Kind: "applied", Fault: held[0]}, {Kind: "drifted", Fault: held[1]}} {
		tel.Observe(e)
	}
	says(t, tel,
		`netemd_faults{engine="netem",kind="packet",state="active"} 1`,
		`netemd_faults{engine="netem",kind="packet",state="lost"} 0`,
		`netemd_faults{engine="ebpf",kind="packet",state="drifted"} 1`,
		`netemd_faults{engine="ebpf",kind="content",state="active"} 1`,
		`netemd_faults{engine="stream",kind="stream",state="active"} 1`,
		`netemd_packets_queued{engine="ebpf",kind="packet"} 3`,
		`netemd_holds 1`,
		`netemd_applies_waiting 4`,
		`netemd_watchers 0`,
		`netemd_fault_events_total{engine="netem",event="applied",kind="packet"} 2`,
		`netemd_fault_events_total{engine="ebpf",event="drifted",kind="packet"} 1`,
		`netemd_packets_total{engine="netem",kind="packet",outcome="seen"} 10`,
		`netemd_packets_total{engine="netem",kind="packet",outcome="lost"} 2`,
		`netemd_packets_total{engine="ebpf",kind="packet",outcome="overflow"} 1`,
		`netemd_packets_total{engine="ebpf",kind="content",outcome="delayed"} 5`,
	)
	text, _ := read(t, tel, Path)
	for _, want := range []string{"netemd_build_info{goversion=", "go_goroutines ", "process_open_fds "} {
		if !strings.Contains(text, "\n"+want) {
			t.Errorf("no %q", want)
		}
	}
	for _, secret := range []string{"secret", "abc1"} {
		if strings.Contains(text, secret) {
			t.Errorf("the metrics say %q", secret)
		}
	}
}

// A thousand faults make no more series than one.
func TestNumberOfSeriesIsBounded(t *testing.T) {
	var held []fault.Fault
	tel := open(t, metricsAt(Config{Collect: func() []fault.Fault { return held }}), &logged{})
	tel.Start()
	count := func() (n int) {
		text, _ := read(t, tel, Path)
		for l := range strings.Lines(text) {
			if strings.HasPrefix(l, "netemd_") {
				n++
			}
		}
		return n
	}
	before := count()
	for i := range 1000 {
		f := packet(fmt.Sprintf("abc%d", i), fault.EBPF, fault.Counters{Seen: uint64(i)})
		f.Spec.Target, f.Spec.Owner = fmt.Sprint("target", i), fmt.Sprint("uid ", i)
		held = append(held, f)
		for _, k := range events {
			tel.Observe(fault.Event{Kind: k, Fault: f})
		}
	}
	if after := count(); before < 60 || after != before {
		t.Errorf("%d series of ours, %d after a thousand faults", before, after)
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	tel := open(t, metricsAt(Config{}), &logged{})
	tel.calls.total.WithLabelValues(applyMethod, "ok").Inc()
	families, err := tel.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	ours := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "netemd_") {
			ours++
		} else if !strings.HasPrefix(f.GetName(), "go_") && !strings.HasPrefix(f.GetName(), "process_") {
			t.Errorf("%s: whose is it?", f.GetName())
		}
	}
	if ours < 10 {
		t.Errorf("%d metrics of ours", ours)
	}
}

// The counters only grow, and what a fault counted is in them once, in whatever order
// looks and events come.
func TestPackets(t *testing.T) {
	f := func(seen uint64) fault.Fault { return packet("abc1", fault.EBPF, fault.Counters{Seen: seen}) }
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	type step struct {
		look  []fault.Fault
		event string
		at    time.Time
		seen  uint64
		want  uint64
	}
	for name, steps := range map[string][]step{
		"looks":                  {{look: []fault.Fault{f(10)}, want: 10}, {look: []fault.Fault{f(15)}, want: 15}},
		"ended between looks":    {{event: "applied", at: past, want: 0}, {event: "cleared", at: past, seen: 8, want: 8}, {want: 8}},
		"counted on to its end":  {{look: []fault.Fault{f(10)}, want: 10}, {event: "expired", at: future, seen: 12, want: 12}, {want: 12}},
		"applied is told late":   {{look: []fault.Fault{f(10)}, want: 10}, {event: "applied", at: past, want: 10}, {look: []fault.Fault{f(11)}, want: 11}},
		"changed":                {{look: []fault.Fault{f(10)}, want: 10}, {event: "changed", at: future, want: 10}, {look: []fault.Fault{f(12)}, want: 22}},
		"changed is told late":   {{look: []fault.Fault{f(10)}, want: 10}, {event: "changed", at: past, want: 10}, {look: []fault.Fault{f(10)}, want: 10}},
		"renewed is told late":   {{look: []fault.Fault{f(10)}, want: 10}, {event: "renewed", at: past, seen: 9, want: 10}, {look: []fault.Fault{f(10)}, want: 10}},
		"moved with its counts":  {{look: []fault.Fault{f(10)}, want: 10}, {event: "changed", at: future, seen: 14, want: 14}, {look: []fault.Fault{f(15)}, want: 15}},
		"its end was not told":   {{look: []fault.Fault{f(10)}, want: 10}, {want: 10}, {want: 10}},
		"lost for one look only": {{look: []fault.Fault{f(10)}, want: 10}, {want: 10}, {look: []fault.Fault{f(11)}, want: 11}},
	} {
		t.Run(name, func(t *testing.T) {
			fs := newFaults(Config{})
			for i, s := range steps {
				if s.event == "" {
					fs.packets.look(s.look)
				} else {
					fs.observe(fault.Event{Kind: s.event, Time: s.at, Fault: f(s.seen)})
				}
				if got := fs.total(t, "seen"); got != s.want {
					t.Fatalf("step %d: %d seen, want %d", i, got, s.want)
				}
			}
			for range 3 {
				fs.packets.look(nil)
			}
			if n := len(fs.packets.seen); n != 0 {
				t.Errorf("%d faults are remembered", n)
			}
		})
	}
}

// A fault that ends while the metrics are read is counted once.
func TestPacketsOfFaultsThatEndMeanwhile(t *testing.T) {
	const rounds, each = 200, 5
	var mu sync.Mutex
	held := map[string]fault.Fault{}
	tel := open(t, metricsAt(Config{Collect: func() (all []fault.Fault) {
		mu.Lock()
		defer mu.Unlock()
		for _, f := range held {
			all = append(all, f)
		}
		return all
	}}), &logged{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range rounds {
			f := packet(fmt.Sprint("abc", i), fault.EBPF, fault.Counters{})
			mu.Lock()
			held[f.ID] = f
			mu.Unlock()
			tel.Observe(fault.Event{Kind: "applied", Time: time.Now(), Fault: f})
			mu.Lock()
			f.Counters.Seen = each
			held[f.ID] = f
			mu.Unlock()
			mu.Lock()
			delete(held, f.ID)
			mu.Unlock()
			tel.Observe(fault.Event{Kind: "cleared", Time: time.Now(), Fault: f})
		}
	}()
	for open := true; open; {
		if _, err := tel.registry.Gather(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
			open = false
		default:
		}
	}
	if got := tel.faults.total(t, "seen"); got != rounds*each {
		t.Errorf("%d packets, want %d", got, rounds*each)
	}
	if n := len(tel.faults.packets.seen); n != 0 {
		t.Errorf("%d faults are remembered", n)
	}
}

// total is a packet counter of the ebpf engine's packet faults.
func (f *faults) total(t *testing.T, outcome string) uint64 {
	t.Helper()
	var m dto.Metric
	if err := f.packets.total.WithLabelValues(outcome, string(fault.EBPF), "packet").Write(&m); err != nil {
		t.Fatal(err)
	}
	return uint64(m.GetCounter().GetValue())
}

func TestResultOf(t *testing.T) {
	if got := resultOf(nil); got != "ok" {
		t.Errorf("nil: %q", got)
	}
	if got := resultOf(errors.New("x")); got != "error" {
		t.Errorf("an error without a code: %q", got)
	}
}
