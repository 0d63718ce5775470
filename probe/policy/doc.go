// Package policy has the protections that clients have against a network: timeouts,
// retries with backoff, a retry budget, a circuit breaker, a bulkhead, hedging, a
// fallback. They are measured here, so each thing that one does is an event with its
// time, and each attempt that one makes is a sample of its own.
//
// A Policy is a plain value. New puts it around a probe.Caller, and the result is one
// again: its calls are logical calls, and what the inner one sees are attempts.
//
// # Order
//
// Policies are layers; the outer ones see what the inner ones make of an attempt.
// DefaultOrder is, from outside to inside:
//
//	fallback > timeout > retry > hedge > breaker > bulkhead > attempt_timeout
//
// The fallback answers for whatever failed below it, a timeout of the call too. The
// timeout of the call bounds all attempts with their pauses; one that stood inside of the
// retry would be a timeout of an attempt. The retry stands outside of breaker and bulkhead:
// each attempt is counted by the breaker, as in resilience4j (Retry > CircuitBreaker >
// Bulkhead), Polly's standard pipeline (total timeout > retry > breaker > attempt timeout)
// and failsafe's documentation (Fallback > RetryPolicy > CircuitBreaker > Timeout), and nobody
// holds a place of the bulkhead through a pause. A hedge is one more attempt for the server,
// so it is counted and bounded as the first one is: Polly's hedging stands there, too. The
// bulkhead is inside of the breaker, since an open breaker needs no place, and a full
// bulkhead says nothing about the peer: what a policy rejected never counts as a failure
// of the peer. The attempt's timeout is innermost: the wait for a place is not the peer's
// slowness. The budget is no layer: retry and hedge ask it.
//
// A Policy can say another order, and each layer stands in it once.
//
// # What is failsafe-go's and what is not
//
// The loop of attempts (which results are tried again, how often, when it is over) and the
// fallback are those of failsafe-go. What takes time or keeps state is not, since in its
// version 0.9.8
//
//   - nothing takes a clock: timers are the time package's, so that no state change can be
//     tested at its exact time on the clock by which calls are measured;
//   - jitter comes from the global random source and has no seed; full, equal and
//     decorrelated jitter are not there;
//   - its breaker counts whatever ends while it is half-open, attempts from before it
//     opened too: a late failure opens it again, a late success closes it, and each gives a
//     permit. It bounds the probes at one time, and not those in all; and it rounds rates,
//     so that 69.5 % opens one of 70 %;
//   - its timeout cancels, and sets no deadline: the client inside cannot pass one on, and
//     reports a cancelled call where a timeout ended it;
//   - its budget bounds the attempts at one time, and has no tokens; its bulkhead does not
//     bound who waits; its hedge takes the first result, a failure too.
//
// Tests compare the breaker with failsafe-go's on random courses of attempts that follow one
// another, and show the differences.
//
// # Time and chance
//
// All waits go through a Clock: Real, or a FakeClock, on which every state change is tested.
// Delays are drawn from the seed, the number of the call and that of the retry alone, so a
// call's pauses do not depend on what other calls do. Idempotency keys are not drawn from
// the seed: a second run with the same seed must not repeat what a server has seen.
package policy
