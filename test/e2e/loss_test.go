package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"netemd/internal/testenv"
)

// summary has the fields of a probe's data that the tests look at.
type summary struct {
	Count  int            `json:"count"`
	OK     int            `json:"ok"`
	Errors map[string]int `json:"errors"`
	P50    *float64       `json:"p50_ms"`
	P99    *float64       `json:"p99_ms"`
	Causes map[string]int `json:"causes"`

	Explained       *float64       `json:"explained_percent"`
	Retransmissions map[string]int `json:"retransmissions"`
	Drops           *struct {
		Recorded   int            `json:"recorded"`
		Kinds      map[string]int `json:"kinds"`
		Repeatable int            `json:"repeatable"`
		Answered   int            `json:"answered"`
		Slow       map[string]int `json:"slow_calls_with_drops"`
		All        uint64         `json:"all_dropped"`
		Missed     uint64         `json:"missed"`
	} `json:"drops"`
}

// faultList is the data of `netemctl list`.
type faultList struct {
	Faults []struct {
		ID          string  `json:"id"`
		Target      string  `json:"target"`
		State       string  `json:"state"`
		Engine      string  `json:"engine"`
		LossPercent float64 `json:"loss_percent"`
	} `json:"faults"`
}

// engines are those that this run must try: the kernel's netem only where the run
// was promised it.
func engines() []string {
	if os.Getenv("NETEMD_TEST_NETEM") != "" {
		return []string{"netem", "ebpf"}
	}
	return []string{"ebpf"}
}

// tried are the engines that a part goes through: all, but in the short run of an emulated
// machine only the one that the machine itself has not.
func tried() []string {
	if slow() && !long() {
		return engines()[:1]
	}
	return engines()
}

// TestLab is everything that one lab is enough for, which takes long to make where the
// machine is emulated; each part begins and ends without a fault.
func TestLab(t *testing.T) {
	a := start(t)
	a.must("lab", "up", "pg")
	for _, part := range []struct {
		name string
		test func(*testing.T, agent)
		// alike says that it is the same on every kernel: the machine itself has it.
		alike bool
	}{
		{"bad input", testBadInput, true},
		{"auto", testAuto, false},
		{"neutral wire", testNeutralWire, false},
		{"loss", testLoss, false},
		{"delay", testDelay, false},
		{"time to live", testTTL, true},
		{"toxic", testToxic, true},
		{"two clients", testTwoClients, true},
		{"not allowed", testNotAllowed, true},
		{"raw requests", testRawRequests, true},
		{"dead proxy", testDeadProxy, true},
	} {
		if part.alike && slow() && !long() {
			continue
		}
		t.Run(part.name, func(t *testing.T) {
			a := *a
			a.t = t
			part.test(t, a)
			a.must("clear", "--all")
		})
	}
	t.Run("life", func(t *testing.T) {
		defer func(t *testing.T) { a.t = t }(a.t)
		testLife(t, a)
	})
}

// testLoss is the main job: PostgreSQL, 20 % packet loss, the long tail and the
// reasons for it, on each engine.
func testLoss(t *testing.T, a agent) {
	for _, engine := range tried() {
		t.Run(engine, func(t *testing.T) {
			a.must("loss", "20%", "--target", "pg", "--engine", engine)
			list := data[faultList](t, a.must("list", "-o", "json"), "faults")
			if len(list.Faults) != 1 || list.Faults[0].State != "active" || list.Faults[0].Engine != engine || list.Faults[0].LossPercent != 20 {
				t.Errorf("list: %+v, want one active fault of 20 %% on %s", list, engine)
			}
			qdiscs := in(t, "netem-pg-wire", "tc", "qdisc", "show").stdout
			if got := strings.Contains(qdiscs, "loss 20%"); got != (engine == "netem") {
				t.Errorf("engine %s, and tc says:\n%s", engine, qdiscs)
			}

			n := 60
			if long() {
				n = 200
			}
			s := data[summary](t, a.must("probe", "pg", "--target", "pg", "-n", fmt.Sprint(n), "--timeout", "20s", "-o", "json"), "probe")
			// A call is 13 or more segments of the client's: that none of 60 calls meets a
			// loss of 20 % has a chance below 1e-75.
			if s.Count != n || s.P99 == nil || *s.P99 < 200 {
				t.Fatalf("probe: %+v, want %d calls with a p99 of at least the retransmission timeout's floor, 200 ms", s, n)
			}
			// Each call loses its SYN with 20 %: that none of 60 does has a chance of 2e-6.
			if s.Causes["syn_retransmit"] == 0 {
				t.Errorf("causes %v, want syn_retransmit among them", s.Causes)
			}
			if s.Causes["rto"]+s.Causes["tlp"] == 0 {
				t.Errorf("causes %v, want rto or tlp among them", s.Causes)
			}
			if engine == "ebpf" && !slow() { // sch_netem keeps no record
				testExplained(t, a)
			}

			a.must("clear", "--target", "pg")
			if list := data[faultList](t, a.must("list", "-o", "json"), "faults"); len(list.Faults) != 0 {
				t.Errorf("after clear: %+v", list)
			}
			s = data[summary](t, a.must("probe", "pg", "--target", "pg", "-n", "20", "-o", "json"), "probe")
			if s.OK != 20 || s.Causes["syn_retransmit"] != 0 {
				t.Errorf("after clear: %+v, want 20 calls without a lost SYN", s)
			}
		})
	}
}

// testNeutralWire checks that the wire carries a neutral netem from the start, that
// a fault changes that very qdisc and that clearing leaves it: no add, no delete.
func testNeutralWire(t *testing.T, a agent) {
	testenv.Netem(t)
	root := func() string {
		for line := range strings.Lines(in(t, "netem-pg-wire", "tc", "qdisc", "show", "dev", "server").stdout) {
			return strings.TrimSpace(line)
		}
		return ""
	}
	handle := func(line string) string { return strings.Join(strings.Fields(line + " - - -")[:3], " ") }
	neutral := root()
	if !strings.Contains(neutral, "qdisc netem") || strings.Contains(neutral, "loss") {
		t.Fatalf("root of a fresh wire: %q, want a neutral netem", neutral)
	}
	a.must("apply", "--target", "pg", "--loss", "5%", "--delay", "50ms", "--jitter", "10ms", "--duplicate", "1%", "--engine", "netem")
	faulty := root()
	for _, want := range []string{"delay 50ms  10ms", "loss 5%", "duplicate 1%"} {
		if !strings.Contains(faulty, want) {
			t.Errorf("root under the fault: %q, want %q in it", faulty, want)
		}
	}
	a.must("change", id(t, a), "--loss", "0%")
	if got := root(); strings.Contains(got, "loss") || !strings.Contains(got, "delay 50ms") {
		t.Errorf("root after loss 0%%: %q, want the delay alone", got)
	}
	a.must("clear", id(t, a))
	if got := root(); got != neutral || handle(got) != handle(faulty) {
		t.Errorf("root after clear: %q, want %q", got, neutral)
	}
}

// id is that of the only fault.
func id(t *testing.T, a agent) string {
	t.Helper()
	list := data[faultList](t, a.must("list", "-o", "json"), "faults")
	if len(list.Faults) != 1 {
		t.Fatalf("list: %+v, want one fault", list)
	}
	return list.Faults[0].ID
}

// testDelay measures a delay of 40 ms each way on the engine that auto takes.
func testDelay(t *testing.T, a agent) {
	a.must("delay", "40ms", "--target", "pg", "--direction", "both")
	s := data[summary](t, a.must("probe", "pg", "--target", "pg", "-n", "12", "-o", "json"), "probe")
	// The handshake and at least four turns: five round trips of 80 ms.
	if s.OK != 12 || s.P50 == nil || *s.P50 < 400 {
		t.Errorf("probe: %+v, want 12 calls of at least 400 ms", s)
	}
	if s.Causes["queueing"] == 0 {
		t.Errorf("causes %v, want queueing: the path delays everything", s.Causes)
	}
}

// testTTL checks that a fault ends by itself, and that its flow is whole then.
func testTTL(t *testing.T, a agent) {
	ttl := 3 * time.Second
	if os.Getenv("NETEMD_TEST_VM") != "" { // where a program takes seconds to start
		ttl *= 3
	}
	began := time.Now()
	a.must("partition", "--target", "pg", "--ttl", ttl.String())
	s := data[summary](t, a.must("probe", "pg", "--target", "pg", "-n", "1", "--timeout", "1s", "-o", "json"), "probe")
	if s.Errors["timeout"] != 1 {
		t.Errorf("in a partition: %+v, want a timeout", s)
	}
	time.Sleep(time.Until(began.Add(ttl + time.Second)))
	s = data[summary](t, a.must("probe", "pg", "--target", "pg", "-n", "5", "-o", "json"), "probe")
	if s.OK != 5 {
		t.Errorf("after the time to live: %+v, want 5 good calls", s)
	}
	if list := data[faultList](t, a.must("list", "-o", "json"), "faults"); len(list.Faults) != 0 {
		t.Errorf("after the time to live: %+v", list)
	}
}

// testToxic checks the stream layer: the proxy delays, and clearing ends it.
func testToxic(t *testing.T, a agent) {
	a.must("toxic", "latency", "--latency", "100ms", "--target", "pg")
	s := data[summary](t, a.must("probe", "pg", "--target", "pg", "--layer", "proxy", "-n", "8", "-o", "json"), "probe")
	if s.OK != 8 || s.P50 == nil || *s.P50 < 400 {
		t.Errorf("through the proxy with 100 ms: %+v, want at least 4 turns of 100 ms", s)
	}
	a.must("clear", "--all")
	a.must("toxic", "down", "--target", "pg")
	s = data[summary](t, a.must("probe", "pg", "--target", "pg", "--layer", "proxy", "-n", "3", "-o", "json"), "probe")
	if s.Errors["refused"] != 3 {
		t.Errorf("through a proxy that is down: %+v, want 3 refused", s)
	}
	a.must("clear", "--all")
	s = data[summary](t, a.must("probe", "pg", "--target", "pg", "--layer", "proxy", "-n", "3", "-o", "json"), "probe")
	if s.OK != 3 {
		t.Errorf("after clear: %+v, want 3 good calls", s)
	}
}
