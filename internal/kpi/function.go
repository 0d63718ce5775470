package kpi

import "math"

// Function is what an expression may call.
type Function struct {
	// Form is how it is written: "min(a, b, ...)".
	Form string
	// Means says what it gives.
	Means string
}

type function struct {
	Function
	least, most int
	// several says that the first argument is a metric with many values.
	several bool
	// holds is of a condition, gives of a number.
	holds func([]Value) bool
	gives func([]Value) float64
}

var functions = map[string]function{
	"abs":     {Function: Function{"abs(a)", "a without its sign"}, least: 1, most: 1, gives: func(v []Value) float64 { return math.Abs(v[0].Number) }},
	"min":     {Function: Function{"min(a, b, ...)", "the least"}, least: 1, most: 20, gives: fold(math.Min)},
	"max":     {Function: Function{"max(a, b, ...)", "the largest"}, least: 1, most: 20, gives: fold(math.Max)},
	"pow":     {Function: Function{"pow(a, n)", "a to the power n"}, least: 2, most: 2, gives: func(v []Value) float64 { return math.Pow(v[0].Number, v[1].Number) }},
	"between": {Function: Function{"between(a, low, high)", "whether low <= a <= high"}, least: 3, most: 3, holds: func(v []Value) bool { return v[1].Number <= v[0].Number && v[0].Number <= v[2].Number }},
	"agrees": {Function: Function{"agrees(rate, p)", "whether chance explains the difference of a rate and the probability p, at the level 99.9 %"}, least: 2, most: 2, holds: func(v []Value) bool {
		return alike(v[0], Value{Number: v[1].Number})
	}},
	"uniform": {Function: Function{"uniform(values, low, high)", "whether chance explains the difference of values and an even spread from low to high, at the level 99.9 %"}, least: 3, most: 3, several: true, holds: func(v []Value) bool {
		return Uniform(v[0].Values, v[1].Number, v[2].Number, Level)
	}},
}

func fold(f func(a, b float64) float64) func([]Value) float64 {
	return func(v []Value) float64 {
		x := v[0].Number
		for _, y := range v[1:] {
			x = f(x, y.Number)
		}
		return x
	}
}

// Functions are those that an expression may call, by name.
func Functions() []Function {
	var all []Function
	for _, name := range []string{"abs", "min", "max", "pow", "between", "agrees", "uniform"} {
		all = append(all, functions[name].Function)
	}
	return all
}
