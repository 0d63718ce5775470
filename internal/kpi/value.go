package kpi

import (
	"math"
	"slices"
)

// Value is a number that was measured. The zero Value is the number 0.
type Value struct {
	Number float64
	// Of is how many cases a rate is of; 0 for what is no rate, or one that is exact.
	Of int
	// Values are those of a metric that is several, sorted; nil of others.
	Values []float64
	// Short says that it is of a run that was made shorter than its plan: an order that the
	// interval of a rate leaves open is not decided by it.
	Short bool
	// AtLeast says that Number is no more than a lower bound, as of what had not ended when it
	// was looked at last.
	AtLeast bool
}

// bounds are a short rate's interval, from a lower bound to infinity, and the number of others.
func (v Value) bounds() (low, high float64) {
	if v.AtLeast {
		return v.Number, math.Inf(1)
	}
	if v.Short && v.Of > 0 {
		return Interval(v)
	}
	return v.Number, v.Number
}

// Several is the Value of a metric with many values: its number is their median. There is one
// at least.
func Several(values []float64) Value {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	return Value{Number: (values[(n-1)/2] + values[n/2]) / 2, Values: values}
}

// Rate is good of all; not a number where there is none.
func Rate(good, all int) Value {
	if all == 0 {
		return Value{Number: math.NaN()}
	}
	return Value{Number: float64(good) / float64(all), Of: all}
}

// Known reports whether there is a number.
func (v Value) Known() bool { return !math.IsNaN(v.Number) }

// Measured looks up what was measured. The error says why there is nothing, such as a phase
// that did not pass.
type Measured func(Ref) (Value, error)
