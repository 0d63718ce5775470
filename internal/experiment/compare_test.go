package experiment

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/fault"
	"netemd/probe"
	"netemd/qdisc"
)

func compared() Plan {
	return Plan{
		Target: "pg", Packet: qdisc.Netem{Loss: 20}, Direction: fault.To, Engine: fault.Auto,
		Request: probe.Request{Count: 200, Concurrency: 4, Timeout: 5 * time.Second}, Proxy: true, Asked: "loss 20% to pg",
	}
}

func quiet(string, int, int) {}

func TestCompare(t *testing.T) {
	a := newAgent()
	var stood []string
	a.during = func(layer string, faults int) {
		stood = append(stood, layer+"/"+[]string{"none", "one", "more"}[faults])
	}
	c, err := Compare(t.Context(), compared(), a, a, quiet)
	if err != nil {
		t.Fatal(err)
	}
	var layers []string
	for _, r := range c.Rows {
		layers = append(layers, r.Layer)
		if r.Count != 200 || len(r.Samples) != 200 || r.Target != "pg" {
			t.Errorf("%s: %d calls, %d samples, target %q", r.Layer, r.Count, len(r.Samples), r.Target)
		}
	}
	if diff := cmp.Diff([]string{"none", "packet", "proxy", "proxy+latency"}, layers); diff != "" {
		t.Error(diff)
	}
	// The fourth is the calibration.
	if diff := cmp.Diff([]string{"direct/none", "direct/one", "proxy/none", "proxy/one", "proxy/one"}, stood); diff != "" {
		t.Error(diff)
	}
	if !c.Conclusive || len(c.Reasons) > 0 || len(c.Warnings) > 0 {
		t.Errorf("conclusive %v, reasons %q, warnings %q", c.Conclusive, c.Reasons, c.Warnings)
	}
	if c.Engine != fault.EBPF || c.EngineReason != "because" {
		t.Errorf("engine %s: %s", c.Engine, c.EngineReason)
	}
	packet := c.Row(LayerPacket)
	if packet.Loss == nil || *packet.Measured != 20 || packet.Counters.Seen != 3000 {
		t.Errorf("loss %+v, counters %+v", packet.Loss, packet.Counters)
	}
	if len(a.faults) != 0 {
		t.Errorf("left behind: %v", a.faults)
	}
}

// TestCompareSameMedian has an agent whose calls have another number of turns than
// the calibration starts from.
func TestCompareSameMedian(t *testing.T) {
	for _, turns := range []float64{1, 2, 5, 8} { // 1 and more: below that there is no row
		a := newAgent()
		a.turns = turns
		c, err := Compare(t.Context(), compared(), a, a, quiet)
		if err != nil {
			t.Fatal(err)
		}
		packet, lat := *c.Row(LayerPacket).P50, *c.Row(LayerProxyLatency).P50
		// A latency has a resolution of 1 ms, so the sum is off by turns/2 at most.
		if off := max(packet-lat, lat-packet); off > turns/2+0.01 {
			t.Errorf("%v turns: packet p50 %v, proxy+latency p50 %v", turns, packet, lat)
		}
		if c.Latency.Turns != turns || c.Latency.CalibrationCalls != calibrationCalls {
			t.Errorf("%v turns: stated %+v", turns, c.Latency)
		}
	}
}

func TestCompareInconclusive(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(*agent)
		want string
	}{
		{"nothing matched", func(a *agent) { a.counters = fault.Counters{} }, "0 packets matched"},
		{"nothing lost", func(a *agent) { a.counters = fault.Counters{Seen: 3000} }, "not one was lost"},
		{"lost", func(a *agent) { a.state = fault.Lost }, "was lost while the calls ran"},
		{"drifted", func(a *agent) { a.state = fault.Drifted }, "was drifted while the calls ran"},
		{"gone", func(a *agent) { a.gone = true }, "not held to its end"},
		{"control", func(a *agent) { a.unhealthy = true }, "the control run is not healthy: 180 of 200"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAgent()
			c.set(a)
			got, err := Compare(t.Context(), compared(), a, a, quiet)
			if err != nil {
				t.Fatal(err)
			}
			if got.Conclusive || !strings.Contains(strings.Join(got.Reasons, "\n"), c.want) {
				t.Errorf("conclusive %v, reasons %q, want %q", got.Conclusive, got.Reasons, c.want)
			}
			if len(a.faults) != 0 {
				t.Errorf("left behind: %v", a.faults)
			}
		})
	}
}

func TestCompareWarns(t *testing.T) {
	for _, c := range []struct {
		name     string
		counters fault.Counters
		want     string
	}{
		{"other loss", fault.Counters{Seen: 3000, Lost: 300}, "is not what was asked for"},
		{"overflow", fault.Counters{Seen: 3000, Lost: 600, Overflow: 9}, "9 packets were lost to a full queue"},
		{"late", fault.Counters{Seen: 3000, Lost: 600, Late: 8}, "8 packets were thrown away late, the engine having stood still"},
		{"refused", fault.Counters{Seen: 3000, Lost: 600, Refused: 7}, "7 packets were refused by the device"},
		{"opened", fault.Counters{Seen: 3000, Lost: 600, Opened: 4}, "4 packets passed unimpaired"},
	} {
		a := newAgent()
		a.counters = c.counters
		got, err := Compare(t.Context(), compared(), a, a, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if !got.Conclusive || !strings.Contains(strings.Join(got.Warnings, "\n"), c.want) {
			t.Errorf("%s: conclusive %v, warnings %q", c.name, got.Conclusive, got.Warnings)
		}
	}
}

func TestCompareBusy(t *testing.T) {
	a := newAgent()
	a.busy, a.settle = 300, 290
	c, err := Compare(t.Context(), compared(), a, a, quiet)
	if err != nil {
		t.Fatal(err)
	}
	told := strings.Join(c.Warnings, "\n")
	if !c.Conclusive || !strings.Contains(told, "200 of 200 calls above 150 ms") || !strings.Contains(told, "is not the packet layer's") {
		t.Errorf("conclusive %v, warnings %q", c.Conclusive, c.Warnings)
	}
}

func TestCompareWithoutMedian(t *testing.T) {
	a := newAgent()
	a.noSuccess = true
	c, err := Compare(t.Context(), compared(), a, a, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if c.Row(LayerProxyLatency) != nil || len(c.Warnings) != 1 || !c.Conclusive {
		t.Errorf("%d rows, warnings %q", len(c.Rows), c.Warnings)
	}
}

func TestCompareWithoutProxy(t *testing.T) {
	a, p := newAgent(), compared()
	p.Proxy = false
	c, err := Compare(t.Context(), p, a, a, quiet)
	if err != nil || len(c.Rows) != 2 {
		t.Errorf("%d rows, error %v", len(c.Rows), err)
	}
}

var errStop = errors.New("stopped by the test")

// TestCompareInterrupted ends the context in every phase; no fault may be left.
func TestCompareInterrupted(t *testing.T) {
	for phase := range 5 {
		a := newAgent()
		ctx, cancel := context.WithCancelCause(t.Context())
		n := 0
		a.during = func(string, int) {
			if n == phase {
				cancel(errStop)
			}
			n++
		}
		_, err := Compare(ctx, compared(), a, a, quiet)
		if !errors.Is(err, errStop) {
			t.Errorf("phase %d: error %v", phase, err)
		}
		if len(a.faults) != 0 {
			t.Errorf("phase %d: left behind: %v", phase, a.faults)
		}
	}
}

func TestCompareApplyFails(t *testing.T) {
	a := newAgent()
	a.applyErr = fault.ErrConflict
	if _, err := Compare(t.Context(), compared(), a, a, quiet); !errors.Is(err, fault.ErrConflict) {
		t.Errorf("error %v", err)
	}
}

// TestCompareKinds: what the rows are of each kind, and how the calibration finds its way.
func TestCompareKinds(t *testing.T) {
	for _, c := range []struct {
		name    string
		request probe.Request
		turns   float64
		rows    string
		warning string
		calls   string
	}{
		{"pg", probe.Request{}, 5, "none packet proxy proxy+latency", "", "a new connection and one prepared query"},
		{"pool", probe.Request{Postgres: probe.PostgresOptions{Mode: "query", Pool: 3}}, 1, "none packet proxy proxy+latency", "", "one simple query on one of 3 kept connections"},
		{"http", probe.Request{Kind: probe.KindHTTP}, 1, "none packet proxy proxy+latency", "", "GET / by HTTP/1.1 on a new connection"},
		{"grpc", probe.Request{Kind: probe.KindGRPC, GRPC: probe.GRPCOptions{Mode: "bidi"}}, 11, "none packet proxy proxy+latency", "", "a stream both ways of 10 messages of gRPC, 64B a message, on one channel for all"},
		{"tcp connect", probe.Request{Kind: probe.KindTCP}, 0, "none packet proxy", "wait for no answer of the server", "a new connection"},
		{"udp", probe.Request{Kind: probe.KindUDP}, 1, "none packet", "a TCP proxy carries no packets", "a packet of 64B there and back"},
	} {
		a, p := newAgent(), compared()
		a.turns = c.turns
		c.request.Count = 100
		p.Request = c.request
		got, err := Compare(t.Context(), p, a, a, quiet)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		for _, r := range got.Rows {
			rows = append(rows, r.Layer)
		}
		told := strings.Join(got.Warnings, "\n")
		if strings.Join(rows, " ") != c.rows || got.Calls != c.calls || (c.warning == "") != (told == "") || !strings.Contains(told, c.warning) {
			t.Errorf("%s: rows %q, calls %q, warnings %q", c.name, rows, got.Calls, told)
		}
		if l := got.Latency; l != nil && l.Turns != c.turns {
			t.Errorf("%s: %g turns, want %g", c.name, l.Turns, c.turns)
		}
		for _, asked := range a.asked {
			if asked.Kind != c.request.Kind || asked.Target != "pg" || (asked.Layer == probe.LayerProxy) != (asked.row == "" || strings.HasPrefix(asked.row, "proxy")) {
				t.Errorf("%s: asked for %+v", c.name, asked)
			}
			if asked.row == "" && (asked.Count != calibrationCalls || asked.Duration != 0) {
				t.Errorf("%s: the calibration made %d calls for %v", c.name, asked.Count, asked.Duration)
			}
		}
	}
}

// TestCompareOpenLoop: a run that only its duration ends has the same loop in every row, and a
// calibration that ends by its count.
func TestCompareOpenLoop(t *testing.T) {
	a, p := newAgent(), compared()
	p.Request = probe.Request{Duration: time.Minute, Warmup: time.Second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 10, To: 10}}}}
	a.endless = 600
	c, err := Compare(t.Context(), p, a, a, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if c.Count != 0 || c.DurationMS != 60_000 || c.Concurrency != 0 || len(c.Rows) != 4 {
		t.Errorf("comparison %d calls, %g ms, concurrency %d, %d rows", c.Count, c.DurationMS, c.Concurrency, len(c.Rows))
	}
	for _, asked := range a.asked {
		if asked.Open == nil || (asked.row == "") != (asked.Count == calibrationCalls && asked.Duration == 0 && asked.Warmup == 0) {
			t.Errorf("asked for %+v", asked)
		}
	}
}
