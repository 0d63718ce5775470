package policy

import (
	"time"

	"netemd/probe"
)

// Policy is what a client does to protect itself. The zero value does nothing: each call
// is one attempt. A nil part is not there. It is a plain value, which encodes as JSON
// (durations in ns) and back.
type Policy struct {
	// Name and Summary are for people.
	Name    string `json:"name,omitempty"`
	Summary string `json:"summary,omitempty"`
	// Order are the layers from the outermost to the innermost; it names each one that is
	// there, once. Default: DefaultOrder, without those that are not there.
	Order []Layer `json:"order,omitempty"`
	// CallTimeout bounds the logical call with all its attempts and pauses, 1 ms..1 h;
	// 0: none.
	CallTimeout time.Duration `json:"call_timeout_ns,omitempty"`
	// AttemptTimeout bounds each attempt, 1 ms..10 min; 0: Options.AttemptTimeout.
	AttemptTimeout time.Duration `json:"attempt_timeout_ns,omitempty"`
	Retry          *Retry        `json:"retry,omitempty"`
	Budget         *Budget       `json:"budget,omitempty"`
	Hedge          *Hedge        `json:"hedge,omitempty"`
	Breaker        *Breaker      `json:"breaker,omitempty"`
	Bulkhead       *Bulkhead     `json:"bulkhead,omitempty"`
	Fallback       *Fallback     `json:"fallback,omitempty"`
	Deadline       *Deadline     `json:"deadline,omitempty"`
	Idempotency    *Idempotency  `json:"idempotency,omitempty"`
}

// Layer is one of the policies that stand around each other.
type Layer string

// The layers.
const (
	LayerFallback       Layer = "fallback"
	LayerTimeout        Layer = "timeout"
	LayerRetry          Layer = "retry"
	LayerHedge          Layer = "hedge"
	LayerBreaker        Layer = "breaker"
	LayerBulkhead       Layer = "bulkhead"
	LayerAttemptTimeout Layer = "attempt_timeout"
)

// Backoff is how the pauses before retries grow.
type Backoff string

// The backoffs. E(n) is Base x Factor^(n-1), at most MaxDelay, before the retry n from 1.
// The names of those with jitter are of "Exponential Backoff And Jitter", AWS Architecture
// Blog, 2015.
const (
	// None: at once.
	None Backoff = "none"
	// Fixed: Base.
	Fixed Backoff = "fixed"
	// Exponential: E(n).
	Exponential Backoff = "exponential"
	// FullJitter: evenly from 0 to E(n).
	FullJitter Backoff = "full_jitter"
	// EqualJitter: E(n)/2, and evenly from 0 to E(n)/2 more.
	EqualJitter Backoff = "equal_jitter"
	// DecorrelatedJitter: evenly from Base to three times the pause before, which is Base
	// at first, and at most MaxDelay. Factor has no effect.
	DecorrelatedJitter Backoff = "decorrelated_jitter"
)

// Retry makes another attempt after one that failed.
type Retry struct {
	// MaxAttempts of one call, the first one included, 1..100; default 3, as in
	// resilience4j and failsafe.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// Backoff, default None.
	Backoff Backoff `json:"backoff,omitempty"`
	// Base of the backoff, 1 us..10 min; default 100 ms.
	Base time.Duration `json:"base_ns,omitempty"`
	// Factor by which pauses grow, 1..10; default 2.
	Factor float64 `json:"factor,omitempty"`
	// MaxDelay is the longest pause, at least Base and at most 1 h; default 30 s, or Base
	// where that is longer.
	MaxDelay time.Duration `json:"max_delay_ns,omitempty"`
	// IgnorePushback has the retries come when the backoff says. Otherwise the pause that a
	// server asks for (probe.Sample.PushbackNS) is the least one, and there is no retry where
	// it asks for none, or for a pause longer than MaxDelay.
	IgnorePushback bool `json:"ignore_pushback,omitempty"`
	// On are the classes that are tried again; default: all errors. Rejected, which is a
	// breaker or a bulkhead inside of the retry, is none unless it is named here.
	On []probe.Class `json:"on,omitempty"`
}

// Budget bounds the retries and hedges of all calls together by tokens, as Finagle's
// RetryBudget does: each call brings Ratio of a token, each retry and each hedge takes a
// whole one, and where there is none, there is no retry. Finagle's numbers are a ratio of
// 20 %, 10 a second on top, and tokens that are 10 s old are gone; here MaxTokens bounds what
// is saved up instead, as maxTokens does in gRPC's retry throttling (gRFC A6).
type Budget struct {
	// Ratio of retries to calls, 0..1; default 0.2.
	Ratio float64 `json:"ratio,omitempty"`
	// MaxTokens are saved up at most, and there at the beginning, 1..100,000; default 10.
	MaxTokens int `json:"max_tokens,omitempty"`
	// PerSecond are tokens that come with time, for a client with few calls, 0..10,000;
	// default 0.
	PerSecond int `json:"per_second,omitempty"`
}

// Hedge makes another attempt beside one that is slow, and takes the answer that comes
// first. The others are cancelled, and count as attempts. An attempt that fails does not win
// while another one is under way; the last one that fails is the result. It is for calls that
// may be made twice: New refuses it for others.
type Hedge struct {
	// Delay after which it is made, 1 us..10 min. With a Percentile: until enough
	// attempts were seen; 0: none is made until then.
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Percentile of the durations of the last Window attempts that succeeded is the delay,
	// above 0 and below 1, nearest rank; 0: Delay is.
	Percentile float64 `json:"percentile,omitempty"`
	// Window are the attempts that the Percentile is of, 10..1,000; default 100. It counts
	// from the tenth on.
	Window int `json:"window,omitempty"`
	// Max hedges beside the first attempt, 1..10; default 1. Each comes a delay after the
	// one before.
	Max int `json:"max,omitempty"`
}

// Breaker refuses calls while its peer fails. It is closed at first. When Consecutive
// attempts in a row fail, or Ratio of those in the window do, it is open, and rejects. After
// exactly Open it is half-open with the next call: exactly Probes attempts are let
// through, the others are rejected. Successes of them close it and forget all counts;
// when that number cannot be reached any more it is open again, for the whole of Open. A
// probe that says nothing (cancelled, or rejected by a policy inside) gives its place back.
// What was begun before the last change of state is not counted, however it ends.
type Breaker struct {
	// Consecutive failures that open it, 1..10,000; default 5 where Ratio is 0, else none.
	Consecutive int `json:"consecutive,omitempty"`
	// Ratio of failures that opens it, above 0 and at most 1, in the window of the last
	// Calls results, 1..10,000, or of the last Period, 100 ms..1 h, in steps of a tenth of
	// it; default: 100 calls, as in resilience4j.
	Ratio  float64       `json:"ratio,omitempty"`
	Calls  int           `json:"window_calls,omitempty"`
	Period time.Duration `json:"window_ns,omitempty"`
	// MinCalls are the results in the window below which the Ratio says nothing; 1 to
	// Calls; default 10, or Calls where that is less.
	MinCalls int `json:"min_calls,omitempty"`
	// Open is how long it stays open, 1 ms..1 h; default 10 s.
	Open time.Duration `json:"open_ns,omitempty"`
	// Probes that half-open lets through, 1..1,000; default 1.
	Probes int `json:"probes,omitempty"`
	// Successes of the probes that close it, 1 to Probes; default Probes.
	Successes int `json:"successes,omitempty"`
	// On are the classes that count as failures; default: all errors. Others count as
	// successes: the peer answers. Rejected cannot be one.
	On []probe.Class `json:"on,omitempty"`
}

// Bulkhead bounds what is under way at one time. Who waits is served in the order in which
// he came.
type Bulkhead struct {
	// Concurrent attempts, 1..100,000; default 10.
	Concurrent int `json:"concurrent,omitempty"`
	// Queue is how many may wait, 0..1,000,000; default 0: all that find no place are
	// rejected.
	Queue int `json:"queue,omitempty"`
	// Wait is the longest wait, up to 10 min; 0: as long as the call lasts.
	Wait time.Duration `json:"wait_ns,omitempty"`
}

// The answers of a Fallback.
const (
	// AnswerDefault: a fixed one.
	AnswerDefault = "default"
	// AnswerCached: the last good one, whatever its age up to MaxAge (stale-if-error, RFC
	// 5861).
	AnswerCached = "cached"
)

// Fallback answers in place of the peer. The call's class is ok, and its sample says which
// answer it had (probe.Sample.Degraded).
type Fallback struct {
	// Answer is AnswerDefault (the default) or AnswerCached.
	Answer string `json:"answer,omitempty"`
	// MaxAge of a cached answer, up to 24 h; 0: any.
	MaxAge time.Duration `json:"max_age_ns,omitempty"`
	// On are the classes for which it answers; default: all errors and Rejected.
	On []probe.Class `json:"on,omitempty"`
}

// The deadlines that are passed to the peer.
const (
	// PassAttempt: the one that ends first, the attempt's or the call's, after which nobody
	// waits for the answer to this attempt.
	PassAttempt = "attempt"
	// PassCall: the call's, however short the attempt.
	PassCall = "call"
)

// Deadline tells the peer how long somebody waits for its answer (DeadlineOf), and
// makes no attempt that could not begin before the end of the call: such a retry is given
// up when it would be scheduled.
type Deadline struct {
	// Pass is PassAttempt (the default) or PassCall.
	Pass string `json:"pass,omitempty"`
	// Reserve is kept back from what is passed, for the way of the answer, up to 1 min;
	// default 0.
	Reserve time.Duration `json:"reserve_ns,omitempty"`
}

// The lives of an idempotency key.
const (
	// PerCall: all attempts of a call have the same key, by which the server knows them for
	// one.
	PerCall = "per_call"
	// PerAttempt: each attempt has its own. This is a mistake that clients make; it is here
	// for experiments that must find it.
	PerAttempt = "per_attempt"
	// PerRun: all calls of a Client have the same key, as those of a user who pays once and
	// presses the button many times. The server may process one of them.
	PerRun = "per_run"
)

// Idempotency gives calls a key (IdempotencyKey), a random UUID (version 4, RFC 9562).
type Idempotency struct {
	// Key is PerCall (the default), PerAttempt or PerRun.
	Key string `json:"key,omitempty"`
}
