package policyfile

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/probe"
	"netemd/probe/policy"
	"netemd/qdisc"
)

var update = flag.Bool("update", false, "rewrite the schema")

// every has every key.
const every = `policy: every.key-1
summary: a summary
order: [fallback, breaker, timeout, hedge, retry, bulkhead, attempt_timeout]
timeout: {call: 2s, attempt: 300ms}
retry: {max_attempts: 4, backoff: exponential, base: 10ms, factor: 1.5, max_delay: 1s, obey_pushback: false, on: [refused, timeout]}
budget: {ratio: 7%, max_tokens: 20, per_second: 2}
hedge: {delay: 50ms, percentile: 99.9%, window: 200, max: 2}
breaker:
  consecutive: 3
  ratio: 55.5%
  window: {calls: 40}
  min_calls: 20
  open: 5s
  probes: 4
  successes: 2
  on: timeout
bulkhead: {concurrent: 8, queue: 16, wait: 20ms}
fallback: {answer: cached, max_age: 1m, on: [timeout, rejected]}
deadline: {pass: call, reserve: 5ms}
idempotency: {key: per_attempt}
`

func TestParse(t *testing.T) {
	got, err := Parse("every.yaml", []byte(every))
	if err != nil {
		t.Fatal(err)
	}
	want := policy.Policy{
		Name: "every.key-1", Summary: "a summary",
		Order: []policy.Layer{
			policy.LayerFallback, policy.LayerBreaker, policy.LayerTimeout, policy.LayerHedge, policy.LayerRetry, policy.LayerBulkhead, policy.LayerAttemptTimeout,
		},
		CallTimeout: 2 * time.Second, AttemptTimeout: 300 * time.Millisecond,
		Retry: &policy.Retry{
			MaxAttempts: 4, Backoff: policy.Exponential, Base: 10 * time.Millisecond, Factor: 1.5, MaxDelay: time.Second,
			IgnorePushback: true, On: []probe.Class{probe.Refused, probe.Timeout},
		},
		Budget: &policy.Budget{Ratio: 0.07, MaxTokens: 20, PerSecond: 2},
		Hedge:  &policy.Hedge{Delay: 50 * time.Millisecond, Percentile: 0.999, Window: 200, Max: 2},
		Breaker: &policy.Breaker{
			Consecutive: 3, Ratio: 0.555, Calls: 40, MinCalls: 20, Open: 5 * time.Second, Probes: 4, Successes: 2, On: []probe.Class{probe.Timeout},
		},
		Bulkhead:    &policy.Bulkhead{Concurrent: 8, Queue: 16, Wait: 20 * time.Millisecond},
		Fallback:    &policy.Fallback{Answer: policy.AnswerCached, MaxAge: time.Minute, On: []probe.Class{probe.Timeout, probe.Rejected}},
		Deadline:    &policy.Deadline{Pass: policy.PassCall, Reserve: 5 * time.Millisecond},
		Idempotency: &policy.Idempotency{Key: policy.PerAttempt},
	}
	near := cmp.Options{cmpopts.EquateApprox(0, 1e-12)}
	if d := cmp.Diff(want, got, near); d != "" {
		t.Errorf("policy (-want +got):\n%s", d)
	}
	text, err := YAML(got)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse("", text); err != nil || cmp.Diff(got, again) != "" {
		t.Errorf("%v, read back (-want +got):\n%s\n%s", err, cmp.Diff(got, again), text)
	}
	encoded, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var decoded policy.Policy
	if err := json.Unmarshal(encoded, &decoded); err != nil || cmp.Diff(got, decoded) != "" {
		t.Errorf("%v, from JSON (-want +got):\n%s", err, cmp.Diff(got, decoded))
	}
}

// Each built-in policy is valid, has the name of its file, and is read back as it is written.
func TestBuiltins(t *testing.T) {
	entries, err := files.ReadDir("examples")
	if err != nil || len(entries) != len(names) {
		t.Errorf("%d files of %d names, %v", len(entries), len(names), err)
	}
	for i, p := range Builtins() {
		if p.Name != names[i] || p.Summary == "" {
			t.Errorf("%s is %+v", names[i], p)
		}
		text, err := YAML(p)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := Parse("", text); err != nil || cmp.Diff(p, again) != "" {
			t.Errorf("%s: %v (-want +got):\n%s", p.Name, err, cmp.Diff(p, again))
		}
	}
	if _, ok := Text("../examples/none"); ok {
		t.Error("a path is no name")
	}
}

func TestEmptySectionsHaveTheDefaults(t *testing.T) {
	p, err := Parse("", []byte("policy: p\nretry: {}\nbudget: {}\nbreaker: {}\nbulkhead: {}\nfallback: {}\ndeadline: {}\nidempotency: {}\n"))
	if err != nil || p.Retry == nil || p.Budget == nil || p.Breaker == nil || p.Bulkhead == nil || p.Fallback == nil || p.Deadline == nil || p.Idempotency == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	if text, err := YAML(p); err != nil || !strings.Contains(string(text), "breaker: {}") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestMistakes(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"no name", "retry: {}\n", `p.yaml:1:1: policy: is missing, want the policy's name, such as careful: letters, digits, '-', '_' and '.', at most 64`},
		{"bad name", "policy: a b\n", `p.yaml:1:1: policy: "a b" is not valid, want a name: letters, digits, '-', '_' and '.', at most 64, the first one a letter or digit`},
		{"unknown key", "policy: p\nretry: {attempts: 3}\n", `p.yaml:2:9: retry.attempts: is an unknown key, want one of max_attempts, backoff, base, factor, max_delay, obey_pushback, on`},
		{"no unit", "policy: p\ntimeout: {call: 300}\n", `p.yaml:2:11: timeout.call: "300" is not valid, want the longest that a call takes with all its attempts, from 1ms to 1h`},
		{"no percentage", "policy: p\nbreaker: {ratio: 0.5}\n", `p.yaml:2:11: breaker.ratio: "0.5" is not valid, want the share of failures in the window that opens it, above 0% and up to 100%`},
		{"a zero that would be the default", "policy: p\nretry: {max_attempts: 0}\n", `p.yaml:2:9: retry.max_attempts: is zero, want a number of attempts from 1 to 100, the first one included; 3 if it is not said`},
		{"no retries at all", "policy: p\nretry: {}\nbudget: {ratio: 0%}\n", `p.yaml:3:10: budget.ratio: is zero, want retries and hedges per call, above 0% and up to 100%; 20% if it is not said`},
		{"a zero that is one", "policy: p\nbulkhead: {queue: 0}\n", ""},
		{"range", "policy: p\nretry: {max_attempts: 101}\n", `p.yaml:2:9: retry.max_attempts: "101" is not valid, want a number from 1 to 100`},
		{"class", "policy: p\nretry: {on: [timeout, ok]}\n", `p.yaml:2:23: retry.on[1]: "ok" is not valid, want one of timeout, refused, reset, eof, protocol, server, other, rejected`},
		{"class twice", "policy: p\nretry: {on: [eof, eof]}\n", `p.yaml:2:19: retry.on[1]: "eof" is not valid, want each class once`},
		{"a breaker does not count what was rejected", "policy: p\nbreaker: {on: rejected}\n", `p.yaml:2:11: breaker.on: "rejected" is not valid, want one of timeout, refused, reset, eof, protocol, server, other`},
		{"factor", "policy: p\nretry: {factor: 0x2}\n", `p.yaml:2:9: retry.factor: "0x2" is not valid, want the factor by which pauses grow, from 1 to 10, such as 1.5; 2 if it is not said`},
		{"factor below 1", "policy: p\nretry: {factor: 0.5}\n", `p.yaml:2:9: retry.factor: "0.5" is not valid, want a number from 1 to 10, such as 1.5`},
		{"max_delay below the base", "policy: p\nretry: {base: 1s, max_delay: 100ms}\n", `p.yaml:2:19: retry.max_delay: "100ms" is not valid, want at least the base, 1s`},
		{"attempt longer than the call", "policy: p\ntimeout: {call: 1s, attempt: 2s}\n", `p.yaml:2:21: timeout.attempt: "2s" is not valid, want at most the call's, 1s`},
		{"budget of nothing", "policy: p\nbudget: {ratio: 10%}\n", `p.yaml:2:1: budget: is not valid, want retry or hedge beside it, which take its tokens`},
		{"two windows", "policy: p\nbreaker: {ratio: 50%, window: {calls: 10, time: 10s}}\n", `p.yaml:2:23: breaker.window: is not valid, want calls or time, not both`},
		{"a window without a ratio", "policy: p\nbreaker: {window: {calls: 10}}\n", `p.yaml:2:11: breaker.window: is not valid, want ratio beside it`},
		{"successes", "policy: p\nbreaker: {probes: 2, successes: 3}\n", `p.yaml:2:22: breaker.successes: "3" is not valid, want a number from 1 to 2`},
		{"hedge without a delay", "policy: p\nhedge: {max: 2}\n", `p.yaml:2:1: hedge.delay: is missing, want a duration, such as 50ms, or percentile beside it`},
		{"wait without a queue", "policy: p\nbulkhead: {wait: 1s}\n", `p.yaml:2:12: bulkhead.wait: "1s" is not valid, want queue beside it: nobody waits without one`},
		{"call's deadline without one", "policy: p\ndeadline: {pass: call}\n", `p.yaml:2:12: deadline.pass: "call" is not valid, want timeout.call beside it`},
		{"order without all", "policy: p\ntimeout: {call: 1s}\nretry: {}\norder: [timeout]\n", `p.yaml:4:1: order: "timeout" is not valid, want every layer that the policy has; retry is missing`},
		{"order with what is not there", "policy: p\nretry: {}\norder: [retry, breaker]\n", `p.yaml:3:16: order[1]: "breaker" is not valid, want a layer that the policy has: retry`},
		{"order with one twice", "policy: p\nretry: {}\norder: [retry, retry]\n", `p.yaml:3:16: order[1]: "retry" is not valid, want each layer once`},
		{"a timeout of the call inside of the retry", "policy: p\ntimeout: {call: 1s}\nretry: {}\norder: [retry, timeout]\n", `p.yaml:4:1: order: "retry, timeout" is not valid, want timeout before retry: inside of it, it would be a timeout of each attempt, which is attempt_timeout`},
		{"several at once, in their order", "policy: p\nretry: {max_attempts: 200}\nbreaker: {open: 0s, probes: 2000}\n",
			"p.yaml:2:9: retry.max_attempts: \"200\" is not valid, want a number from 1 to 100\np.yaml:3:11: breaker.open: is zero, want how long it stays open, from 1ms to 1h; 10s if it is not said\np.yaml:3:21: breaker.probes: \"2000\" is not valid, want a number from 1 to 1000"},
	} {
		_, err := Parse("p.yaml", []byte(c.text))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, got, c.want)
		}
		if err != nil && !errors.Is(err, qdisc.ErrInvalid) {
			t.Errorf("%s: %v is not invalid input", c.name, err)
		}
	}
}

// What is published is what the program says.
func TestSchema(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("..", "..", SchemaPath)
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what `netemctl policy schema` says: go test ./internal/policyfile -update (%v)", SchemaPath, err)
	}
}

func TestLoad(t *testing.T) {
	if path, text, err := Load(t.Context(), "breaker"); err != nil || path != "breaker.yaml" || !strings.Contains(string(text), "consecutive: 5") {
		t.Errorf("%s, %v", path, err)
	}
	if _, _, err := Load(t.Context(), "braker"); err == nil || !strings.Contains(err.Error(), "did you mean breaker?") || !errors.Is(err, qdisc.ErrInvalid) {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "own.yaml")
	if _, _, err := Load(t.Context(), path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte(every), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, text, err := Load(t.Context(), path); err != nil || got != path || string(text) != every {
		t.Error(got, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(every))
	for _, name := range names {
		text, _ := Text(name)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Parse("", text)
		if err != nil {
			return
		}
		written, err := YAML(p)
		if err != nil {
			t.Fatalf("%v: %+v", err, p)
		}
		if again, err := Parse("", written); err != nil || cmp.Diff(p, again, cmpopts.EquateApprox(0, 1e-9)) != "" {
			t.Fatalf("%v\n%s\n%s", err, cmp.Diff(p, again), written)
		}
	})
}
