package plan

import (
	"strings"
	"testing"
	"time"
)

// varying is a plan with some more keys.
func varying(keys string) []byte {
	return []byte("{experiment: x, version: 1, load: {probe: http, target: http, timeout: 1s, concurrency: 1, pace: 100ms}, " +
		"phases: {control: 40 calls, fault: 100 calls}, " + keys + "}")
}

func names(p Plan) string {
	var all []string
	for _, c := range p.Cases {
		all = append(all, c.Name)
	}
	return strings.Join(all, " ")
}

// TestMatrix has each case once with each value, and conditions name them.
func TestMatrix(t *testing.T) {
	p, err := Parse("x.yaml", varying("cases: {a: {}, b: {load: {concurrency: 2}}}, matrix: {load.timeout: [200ms, 500ms, 1s]}, "+
		"kpis: [{must: ok(a-200ms) < 90% * ok(b-1s)}, {must: p50_ms < 3 of b-500ms}]"))
	if err != nil {
		t.Fatal(err)
	}
	if got := names(p); got != "a-200ms a-500ms a-1s b-200ms b-500ms b-1s" {
		t.Error(got)
	}
	if c := p.Cases[4]; c.Load.Timeout != 500*time.Millisecond || c.Load.Concurrency != 2 {
		t.Errorf("%+v", c)
	}
	p, err = Parse("x.yaml", varying("faults: [{impairment: {loss: 1%, delay: 5ms}}], matrix: {impairment.loss: [1%, 5%]}, kpis: [{must: 'p50_ms(5%) > p50_ms(1%)'}]"))
	if err != nil || names(p) != "1% 5%" {
		t.Fatalf("%v %s", err, names(p))
	}
	for i, want := range []float64{1, 5} {
		if got := p.Cases[i].Faults[0].Packet; float64(got.Loss) != want || got.Delay != 5*time.Millisecond {
			t.Errorf("%+v", got)
		}
	}
}

func TestMatrixMistakes(t *testing.T) {
	for keys, want := range map[string]string{
		"matrix: {load.timeout: [1s], load.concurrency: [1]}": "matrix: is not valid, want one of the keys",
		"matrix: {}":                       "matrix",
		"matrix: {load.timeout: [x]}":      "matrix.load.timeout[0]",
		"matrix: {load.timeout: [1s, 1s]}": "matrix.load.timeout[1]: \"1s\" is not valid, want a value that no other case has",
		"matrix: {load.timeout: [0.1ms]}":  "timeout",
		"matrix: {impairment.loss: [1%]}":  "matrix.impairment.loss",
		"matrix: {load.pace: [1s]}":        `matrix."load.pace": is an unknown key`,
	} {
		_, err := Parse("x.yaml", varying(keys+", kpis: [{must: ok > 0}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", keys, err, want)
		}
	}
}

func TestQuick(t *testing.T) {
	p, err := Parse("x.yaml", varying("quick: {phases: {fault: 20 calls, recovery: 1s}, takes: 9s}, cases: {a: {}, b: {phases: {fault: 10 calls}}, c: {phases: {fault: 4s, recovery: 3s}}}, kpis: [{must: ok > 0}]"))
	if err != nil {
		t.Fatal(err)
	}
	q := p.Shortened()
	if q.Repeats != 1 || !q.Short || p.Short || q.Cases[0].Fault.Calls != 20 || q.Cases[1].Fault.Calls != 10 || q.Cases[2].Fault.For != 4*time.Second || p.Cases[0].Fault.Calls != 100 {
		t.Errorf("%+v", q)
	}
	if least, most := q.Bounds(); least != 9*time.Second || most != least {
		t.Error(least, most)
	}
	for keys, want := range map[string]string{
		"quick: {repeats: 5}":                "quick.repeats",
		"quick: {phases: {warmup: 3 calls}}": "quick.phases.warmup",
		"quick: {takes: -1s}":                "quick.takes",
		"quick: {phases: {fault: 2s}}, cases: {a: {phases: {fault: 8s}, faults: [{at: 1s, for: 4s, toxics: down}]}}": "quick.phases.fault",
	} {
		_, err := Parse("x.yaml", varying(keys+", kpis: [{must: ok > 0}]"))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\nwant %s", keys, err, want)
		}
	}
}

// TestBounds has what calls take at least and at most.
func TestBounds(t *testing.T) {
	for keys, want := range map[string][2]time.Duration{
		// 40 calls 100 ms apart, and 3 times 100 calls 100 ms apart that last 1 s at most.
		"repeats: 3": {34 * time.Second, 304 * time.Second},
		"cases: {a: {load: {concurrency: 10, timeout: 500ms}}}":                                                               {34 * time.Second, 34 * time.Second},
		"cases: {a: {phases: {fault: 4s, recovery: 2s}}}, repeats: 2":                                                         {16 * time.Second, 16 * time.Second},
		"cases: {a: {load: {policy: p}}}, repeats: 1, policies: {p: {retry: {max_attempts: 3, backoff: fixed, base: 500ms}}}": {14 * time.Second, 404 * time.Second},
		"cases: {a: {load: {rate: 10/s}}}, repeats: 1":                                                                        {14 * time.Second, 15100 * time.Millisecond},
	} {
		p, err := Parse("x.yaml", varying(keys+", kpis: [{must: ok > 0}]"))
		if err != nil {
			t.Errorf("%s: %v", keys, err)
			continue
		}
		if least, most := p.Bounds(); [2]time.Duration{least, most} != want {
			t.Errorf("%s: %v to %v, want %v", keys, least, most, want)
		}
	}
}
