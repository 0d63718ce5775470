package plan

import (
	"testing"
	"time"
)

func TestGrace(t *testing.T) {
	p, err := Parse("x.yaml", []byte(`
experiment: x
version: 1
load: {target: pg, timeout: 300ms}
phases: {fault: 10 calls}
policies:
  none: {retry: {max_attempts: 4}}
  fixed: {retry: {max_attempts: 4, backoff: fixed, base: 50ms}}
  full: {retry: {max_attempts: 4, backoff: full_jitter, base: 100ms}}
  capped: {retry: {max_attempts: 10, backoff: exponential, base: 100ms, max_delay: 1s}}
  own: {timeout: {attempt: 2s}, retry: {max_attempts: 2, backoff: exponential, base: 100ms}}
  decorrelated: {retry: {backoff: decorrelated_jitter, base: 100ms, max_delay: 5s}}
cases:
  without: {}
  none: {load: {policy: none}}
  fixed: {load: {policy: fixed}}
  full: {load: {policy: full}}
  capped: {load: {policy: capped}}
  own: {load: {policy: own}}
  decorrelated: {load: {policy: decorrelated}}
kpis: [{must: retries_outside == 0}]
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{
		"without": 300 * time.Millisecond, "none": 300 * time.Millisecond, "fixed": 350 * time.Millisecond,
		"full": 700 * time.Millisecond, "capped": 1300 * time.Millisecond, "own": 2100 * time.Millisecond, "decorrelated": 5300 * time.Millisecond,
	} {
		c, _ := p.Case(name)
		if got := p.Grace(c); got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
