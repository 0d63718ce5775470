// Package kpi is one line of an experiment's verdict: a comparison of numbers that were
// measured, and where and when they are taken.
//
//	p99_ms < 500 in fault
//	success >= 99% in recovery within 5s
//	attempts/calls <= 1.2 in fault of "with budget"
//	attempts_peak[100ms] < 60% * attempts_peak[100ms](none) in fault of jitter
//	agrees(success, 1 - pow(30%, 2)) in every repeat of fault
//	asked == measured
//
// An expression has numbers (500, 1.2, 20% for 0.2, 100ms and 2s in ms), metrics (see
// Metrics), + - * /, comparisons, && and ||, and the functions of Functions. A metric with
// kinds is asked for one of them (errors[timeout]), one of another case by its name
// (p50_ms(none)), of another phase too (p50_ms(none, control)).
//
// Behind the expression: "in PHASE", "in every repeat of PHASE" (it must hold in each;
// otherwise it holds for all repeats taken together), "of CASE", "after DURATION"
// and "within DURATION" (both from the phase's beginning). Metrics are rates or numbers; two rates are equal where chance explains
// their difference at the level 99.9 %.
package kpi
