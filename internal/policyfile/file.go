package policyfile

import (
	"strconv"
	"time"

	"netemd/internal/strictyaml"
	"netemd/probe"
	"netemd/probe/policy"
	"netemd/qdisc"
)

// file is a policy as its keys, by package strictyaml.
type file struct {
	Name string `yaml:"policy" strict:"required" want:"the policy's name, such as careful: letters, digits, '-', '_' and '.', at most 64"`
	Keys `yaml:",inline"`
}

// Keys are those of a policy but for its name, also in files of which it is a part. What is not
// said has the default of package policy.
type Keys struct {
	Summary string         `yaml:"summary,omitempty" want:"a few words for people"`
	Order   []policy.Layer `yaml:"order,omitempty" want:"the layers that the policy has, from the outermost to the innermost: fallback, timeout, retry, hedge, breaker, bulkhead, attempt_timeout"`

	Timeout     timeout      `yaml:"timeout,omitempty"`
	Retry       *retry       `yaml:"retry,omitempty" strict:"empty"`
	Budget      *budget      `yaml:"budget,omitempty" strict:"empty"`
	Hedge       *hedge       `yaml:"hedge,omitempty"`
	Breaker     *breaker     `yaml:"breaker,omitempty" strict:"empty"`
	Bulkhead    *bulkhead    `yaml:"bulkhead,omitempty" strict:"empty"`
	Fallback    *fallback    `yaml:"fallback,omitempty" strict:"empty"`
	Deadline    *deadline    `yaml:"deadline,omitempty" strict:"empty"`
	Idempotency *idempotency `yaml:"idempotency,omitempty" strict:"empty"`
}

// WantYAML is the form, after "want".
func (Keys) WantYAML() string {
	return "a client policy, such as {timeout: {attempt: 300ms}, retry: {max_attempts: 3}}"
}

// classes are classes of errors; one alone needs no list.
type classes = strictyaml.Several[probe.Class]

type timeout struct {
	Call    time.Duration `yaml:"call,omitempty" want:"the longest that a call takes with all its attempts, from 1ms to 1h"`
	Attempt time.Duration `yaml:"attempt,omitempty" want:"the longest that an attempt takes, from 1ms to 10m"`
}

type retry struct {
	MaxAttempts int            `yaml:"max_attempts,omitempty" want:"a number of attempts from 1 to 100, the first one included; 3 if it is not said"`
	Backoff     policy.Backoff `yaml:"backoff,omitempty" want:"none (if it is not said), fixed, exponential, full_jitter, equal_jitter or decorrelated_jitter"`
	Base        time.Duration  `yaml:"base,omitempty" want:"the first pause, from 1us to 10m; 100ms if it is not said"`
	Factor      factor         `yaml:"factor,omitempty"`
	MaxDelay    time.Duration  `yaml:"max_delay,omitempty" want:"the longest pause, from the base to 1h; 30s if it is not said"`
	Obey        *bool          `yaml:"obey_pushback,omitempty" want:"true (if it is not said), or false: retries come when the backoff says, whatever pause the server asks for"`
	On          classes        `yaml:"on,omitempty" want:"errors that are tried again: timeout, refused, reset, eof, protocol, server, other, and rejected; all but rejected if it is not said"`
}

type budget struct {
	Ratio     qdisc.Percent `yaml:"ratio,omitempty" want:"retries and hedges per call, above 0% and up to 100%; 20% if it is not said"`
	MaxTokens int           `yaml:"max_tokens,omitempty" want:"retries that are saved up, from 1 to 100000; 10 if it is not said"`
	PerSecond int           `yaml:"per_second,omitempty" want:"retries that come with time, from 0 to 10000; 0 if it is not said"`
}

type hedge struct {
	Delay      time.Duration `yaml:"delay,omitempty" want:"the time after which another attempt is made, from 1us to 10m"`
	Percentile qdisc.Percent `yaml:"percentile,omitempty" want:"the percentile of the last durations that is the delay, such as 95%"`
	Window     int           `yaml:"window,omitempty" want:"the durations that the percentile is of, from 10 to 1000; 100 if it is not said"`
	Max        int           `yaml:"max,omitempty" want:"the hedges of one call, from 1 to 10; 1 if it is not said"`
}

type breaker struct {
	Consecutive int           `yaml:"consecutive,omitempty" want:"the failures in a row that open it, from 1 to 10000; 5 if no ratio is said"`
	Ratio       qdisc.Percent `yaml:"ratio,omitempty" want:"the share of failures in the window that opens it, above 0% and up to 100%"`
	Window      window        `yaml:"window,omitempty"`
	MinCalls    int           `yaml:"min_calls,omitempty" want:"the results in the window below which the ratio says nothing; 10 if it is not said"`
	Open        time.Duration `yaml:"open,omitempty" want:"how long it stays open, from 1ms to 1h; 10s if it is not said"`
	Probes      int           `yaml:"probes,omitempty" want:"the attempts that half-open lets through, from 1 to 1000; 1 if it is not said"`
	Successes   int           `yaml:"successes,omitempty" want:"the probes that must succeed, from 1 to all; all if it is not said"`
	On          classes       `yaml:"on,omitempty" want:"errors that count as failures: timeout, refused, reset, eof, protocol, server, other; all if it is not said"`
}

type window struct {
	Calls int           `yaml:"calls,omitempty" want:"the last results that count, from 1 to 10000; 100 if nothing is said"`
	Time  time.Duration `yaml:"time,omitempty" want:"the time whose results count, from 100ms to 1h"`
}

type bulkhead struct {
	Concurrent int           `yaml:"concurrent,omitempty" want:"attempts at one time, from 1 to 100000; 10 if it is not said"`
	Queue      int           `yaml:"queue,omitempty" want:"attempts that may wait, from 0 to 1000000; 0 if it is not said"`
	Wait       time.Duration `yaml:"wait,omitempty" want:"the longest wait, up to 10m; as long as the call lasts if it is not said"`
}

type fallback struct {
	Answer string        `yaml:"answer,omitempty" want:"default (if it is not said) or cached"`
	MaxAge time.Duration `yaml:"max_age,omitempty" want:"how old a cached answer may be, up to 24h; any age if it is not said"`
	On     classes       `yaml:"on,omitempty" want:"errors for which it answers: timeout, refused, reset, eof, protocol, server, other and rejected; all if it is not said"`
}

type deadline struct {
	Pass    string        `yaml:"pass,omitempty" want:"attempt (if it is not said) or call"`
	Reserve time.Duration `yaml:"reserve,omitempty" want:"what is kept back for the way of the answer, up to 1m; 0s if it is not said"`
}

type idempotency struct {
	Key string `yaml:"key,omitempty" want:"per_call (if it is not said), per_run for one key of all calls, or per_attempt, which is a mistake on purpose"`
}

// factor is a number with or without decimals.
type factor float64

// WantYAML is the form, after "want".
func (factor) WantYAML() string {
	return "the factor by which pauses grow, from 1 to 10, such as 1.5; 2 if it is not said"
}

// UnmarshalText reads 2 or 1.5.
func (f *factor) UnmarshalText(text []byte) error {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || strconv.FormatFloat(v, 'f', -1, 64) != string(text) {
		return &qdisc.FieldError{Value: string(text)}
	}
	*f = factor(v)
	return nil
}

// MarshalText writes it as it is read.
func (f factor) MarshalText() ([]byte, error) {
	return strconv.AppendFloat(nil, float64(f), 'f', -1, 64), nil
}
