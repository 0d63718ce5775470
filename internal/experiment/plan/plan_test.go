package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/fault"
	"netemd/internal/kpi"
	"netemd/probe"
	"netemd/qdisc"
)

const tail = `experiment: pg/loss-tail
version: 1
question: what does packet loss look like to the client?
lab: pg
seed: 7
load: {probe: pg, target: pg, timeout: 5s, concurrency: 2, pace: 0s}
phases: {control: 50 calls, fault: 200 calls, recovery: 20 calls}
policies:
  careful: {timeout: {attempt: 300ms}, retry: {max_attempts: 4}}
cases:
  loss5: {faults: [{impairment: {loss: 5%}}]}
  pooled:
    load: {mode: query, pool: 4, layer: proxy, policy: breaker}
    phases: {fault: 10 calls}
    faults: [{toxics: [latency latency=300ms jitter=100ms, timeout timeout=0s to]}]
  hang:
    load: {rate: 20/s, arrival: poisson}
    phases: {warmup: 1s, fault: 8s, recovery: 6s}
    faults:
      - {target: other, at: 1s, for: 2s, direction: both, engine: ebpf, impairment: {loss: 100%}}
kpis:
  - {must: "p99_ms > 1s of loss5", why: the tail, reference: 3094 ms}
  - {must: success(loss5) < success(pooled) in recovery}
`

func TestParse(t *testing.T) {
	p, err := Parse("tail.yaml", []byte(tail))
	if err != nil {
		t.Fatal(err)
	}
	calls := func(n int) Extent { return Extent{Calls: n} }
	load := probe.Request{Kind: "pg", Target: "pg", Timeout: 5 * time.Second, Concurrency: 2, Pace: probe.NoPace}
	open := probe.Request{Kind: "pg", Target: "pg", Timeout: 5 * time.Second, Open: &probe.OpenLoop{Stages: []probe.Stage{{From: 20, To: 20}}, Poisson: true}}
	pooled := load
	pooled.Layer, pooled.Postgres = probe.LayerProxy, probe.PostgresOptions{Mode: "query", Pool: 4}
	want := Plan{
		Name: "pg/loss-tail", Question: "what does packet loss look like to the client?", Lab: "pg", Repeats: 3, Seed: 7,
		Cases: []Case{
			{
				Name: "loss5", Load: load, Control: calls(50), Fault: calls(200), Recovery: calls(20),
				Faults: []Timed{{Spec: fault.Spec{Target: "pg", Packet: &qdisc.Netem{Loss: 5}}}},
			},
			{
				Name: "pooled", Load: pooled, Policy: "breaker", Control: calls(50), Fault: calls(10), Recovery: calls(20),
				Faults: []Timed{{Spec: fault.Spec{Target: "pg", Toxics: []fault.Toxic{
					{Kind: fault.Latency, Latency: 300 * time.Millisecond, Jitter: 100 * time.Millisecond},
					{Kind: fault.Timeout, Stream: fault.Upstream},
				}}}},
			},
			{
				Name: "hang", Load: open, Control: calls(50), Warmup: Extent{For: time.Second}, Fault: Extent{For: 8 * time.Second}, Recovery: Extent{For: 6 * time.Second},
				Faults: []Timed{{
					Spec: fault.Spec{Target: "other", Direction: fault.Both, Engine: fault.EBPF, Packet: &qdisc.Netem{Loss: 100}},
					At:   time.Second, For: 2 * time.Second,
				}},
			},
		},
	}
	if diff := cmp.Diff(want, p, cmpopts.IgnoreFields(Plan{}, "KPIs", "Policies", "Text")); diff != "" {
		t.Error(diff)
	}
	if got := string(p.Policies["careful"]); !strings.Contains(got, "policy: careful") || !strings.Contains(got, "max_attempts: 4") {
		t.Errorf("%s", got)
	}
	if len(p.KPIs) != 2 || p.KPIs[0].Reference != "3094 ms" || p.KPIs[0].Why != "the tail" || p.KPIs[1].Phase != kpi.Recovery {
		t.Errorf("%+v", p.KPIs)
	}
	if !p.Cases[2].Continuous() || p.Cases[0].Continuous() {
		t.Error("continuous")
	}
}

// TestOnly has a plan of one case that is not named, in an open loop.
func TestOnly(t *testing.T) {
	p, err := Parse("", []byte("{experiment: x, version: 1, load: {probe: http, target: web, rate: 20/s, arrival: poisson}, "+
		"phases: {fault: 5s}, faults: [{impairment: delay 10ms}], kpis: [{must: ok > 0}]}"))
	if err != nil {
		t.Fatal(err)
	}
	c := p.Cases[0]
	if len(p.Cases) != 1 || c.Name != "all" || !c.Load.Open.Poisson || c.Load.Open.Stages[0].From != 20 || c.Faults[0].Packet.Delay != 10*time.Millisecond {
		t.Errorf("%+v", p.Cases)
	}
}

// TestCommand has plans whose phases are a command.
func TestCommand(t *testing.T) {
	const head = "{experiment: x, version: 1, lab: echo, "
	const phases = "phases: {control: command, fault: command, recovery: command}, faults: [{target: http, impairment: {loss: 20%}}], "
	for text, want := range map[string]string{
		head + phases + "kpis: [{must: command == 0 in recovery}]}":                                                                 "",
		head + phases + "command: {node: client, limit: 5m}, load: {probe: http, target: http}, kpis: [{must: tests_failed == 0}]}": "",
		head + phases + "command: {limit: 25h}, kpis: [{must: \"tests[TestA/b] == 0\"}]}":                                           "command.limit: \"25h\" is not valid, want a time from 1ms to 24h",
		head + phases + "load: {probe: http}, kpis: [{must: command == 0}]}":                                                        "load.target: is missing",
		"{experiment: x, version: 1, command: {node: client}, " + phases + "kpis: [{must: command == 0}]}":                          "command.node: \"client\" is not valid, want nothing",
		head + "phases: {fault: 5 calls}, load: {target: http}, kpis: [{must: command == 0}]}":                                      "want a number of calls, since the phases of the case all are no command",
	} {
		p, err := Parse("x.yaml", []byte(text))
		switch {
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%s: %v\nwant %s", text, err, want)
		case want == "" && (err != nil || !p.Commands() || p.Command.Limit == 0 || p.Cases[0].Continuous()):
			t.Errorf("%s: %v, %+v", text, err, p)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"experiment: pg/loss-tail", "experiment: Loss Tail", "x.yaml:1:1: experiment: \"Loss Tail\" is not valid, want a name"},
		{"version: 1", "version: 2", "x.yaml:2:1: version: \"2\" is not valid, want 1"},
		{"seed: 7", "repeats: 101", "repeats: \"101\" is not valid, want a number from 1 to 100"},
		{"control: 50 calls", "control: 050 calls", "phases.control: \"050 calls\" is not valid, want a number of calls, a time, or command"},
		{"control: 50 calls", "control: 5x", "want a number of calls, a time, or command"},
		{"fault: 200 calls, ", "", "cases.loss5.phases.fault: is missing"},
		{"recovery: 20 calls", "recovery: 5s", "cases.loss5.phases.fault: \"200 calls\", its default, is not valid, want a time"},
		{"recovery: 20 calls", "recovery: command", "cases.loss5.phases: is missing, want command for control, fault and recovery"},
		{"seed: 7", "command: {limit: 1m}", "command: is of phases that are a command"},
		{"warmup: 1s", "warmup: 5 calls", "cases.hang.phases.warmup: \"5 calls\" is not valid, want a time"},
		{"rate: 20/s", "rate: 20", "cases.hang.load.rate: \"20\" is not valid, want calls a second"},
		{"arrival: poisson", "arrival: bursts", "want constant or poisson"},
		{"arrival: poisson}", "pace: 1s}", "cases.hang.load.pace: is of a closed loop"},
		{"{mode: query, pool: 4", "{messages: 3, pool: 4", "cases.pooled.load.messages"},
		{"mode: query", "mode: fly", "cases.pooled.load"},
		{"target: pg, timeout", "timeout", "cases.loss5.load.target: is missing"},
		{"loss: 5%", "loss: 500%", "faults[0].impairment.loss: \"500%\" is not valid"},
		{"{impairment: {loss: 5%}}", "{target: pg}", "cases.loss5.faults[0]: "},
		{"{impairment: {loss: 5%}}", "{impairment: {loss: 5%}, at: 1s}", "want neither at nor for"},
		{"at: 1s, for: 2s", "at: 7s, for: 2s", "want an end within the phase fault, which takes 8s"},
		{"at: 1s, for: 2s", "at: -1s", "cases.hang.faults[0].at"},
		{"latency latency=300ms", "latency latency=300", "cases.pooled.faults[0].toxics[0]"},
		{"p99_ms > 1s", "p98_ms > 1s", "kpis[0].must: \"p98_ms > 1s of loss5\" is not valid: column 1: there is no metric \"p98_ms\""},
		{"of loss5", "of loss7", "kpis[0].must: \"loss7\" is not valid, want the name of a case"},
		{"in recovery", "in warmup", "want a phase that the case loss5 has"},
		{"max_attempts: 4", "max_attempts: 0", "x.yaml:9:48: policies.careful.retry.max_attempts: is zero"},
		{"max_attempts: 4", "max_attempts: 400", "policies.careful.retry.max_attempts: \"400\" is not valid"},
		{"attempt: 300ms", "attempt: 30h", "policies.careful.timeout.attempt: \"30h"},
		{"careful:", "care/ful:", "x.yaml:9:3: policies.care/ful: \"care/ful\""},
		{"must: success", "must_not: success", "kpis[1].must_not"},
		{tail, "", "is missing"},
	} {
		text := strings.Replace(tail, c.from, c.to, 1)
		if text == tail {
			t.Errorf("%q is not in the plan", c.from)
			continue
		}
		if _, err := Parse("x.yaml", []byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q for %q: %v\nwant %q", c.to, c.from, err, c.want)
		}
	}
}

func TestSchema(t *testing.T) {
	if text, err := Schema(); err != nil || !strings.Contains(string(text), `"recovery"`) {
		t.Errorf("%v: %.200s", err, text)
	}
}
