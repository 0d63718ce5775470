package kpi

import (
	"cmp"
	"errors"
	"fmt"
	"go/token"
	"math"
	"strings"
)

// node is a part of an expression: a number or a condition.
type node interface {
	condition() bool
	// number and holds are asked of a number and of a condition. The error is why it is not
	// known.
	number(Measured) (Value, error)
	holds(Measured) (bool, error)
}

type constant float64

func (constant) condition() bool                  { return false }
func (c constant) number(Measured) (Value, error) { return Value{Number: float64(c)}, nil }
func (constant) holds(Measured) (bool, error)     { return false, errNumber }

var (
	errNumber    = errors.New("a number is no condition")
	errCondition = errors.New("a condition is no number")
)

type metric Ref

func (metric) condition() bool { return false }

func (m metric) number(measured Measured) (Value, error) {
	v, err := measured(Ref(m))
	if err == nil && !v.Known() {
		err = errors.New("nothing was measured")
	}
	if err != nil {
		return Value{}, fmt.Errorf("%v: %w", Ref(m), err)
	}
	return v, nil
}

func (metric) holds(Measured) (bool, error) { return false, errNumber }

type binary struct {
	op   token.Token
	x, y node
}

func (binary) condition() bool { return false }

func (b binary) number(m Measured) (Value, error) {
	x, y, err := two(b.x, b.y, m)
	if err = cmp.Or(err, exact(x, y)); err != nil {
		return Value{}, err
	}
	var v float64
	switch b.op {
	case token.ADD:
		v = x.Number + y.Number
	case token.SUB:
		v = x.Number - y.Number
	case token.MUL:
		v = x.Number * y.Number
	default:
		v = x.Number / y.Number
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Value{}, fmt.Errorf("%g %v %g is no number", x.Number, b.op, y.Number)
	}
	return Value{Number: v}, nil
}

func (binary) holds(Measured) (bool, error) { return false, errNumber }

// exact refuses to calculate with what is only known to be more.
func exact(values ...Value) error {
	for _, v := range values {
		if v.AtLeast {
			return fmt.Errorf("%.4g is no more than a lower bound", v.Number)
		}
	}
	return nil
}

func two(x, y node, m Measured) (a, b Value, err error) {
	a, errX := x.number(m)
	b, errY := y.number(m)
	return a, b, errors.Join(errX, errY)
}

type comparison struct {
	op   token.Token
	x, y node
	text string
}

func (comparison) condition() bool                { return true }
func (comparison) number(Measured) (Value, error) { return Value{}, errCondition }

func (c comparison) holds(m Measured) (bool, error) {
	x, y, err := two(c.x, c.y, m)
	if err != nil {
		return false, err
	}
	xLow, xHigh := x.bounds()
	yLow, yHigh := y.bounds()
	if c.op == token.EQL || c.op == token.NEQ {
		same := alike(x, y)
		switch {
		case !x.AtLeast && !y.AtLeast:
			return same == (c.op == token.EQL), nil
		case xLow > yHigh || yLow > xHigh:
			return c.op == token.NEQ, nil
		}
		return false, c.open(x, y)
	}
	holds := ordered(c.op, x.Number, y.Number)
	if ordered(c.op, xLow, yHigh) != holds || ordered(c.op, xHigh, yLow) != holds {
		return false, c.open(x, y)
	}
	return holds, nil
}

func (c comparison) open(x, y Value) error {
	why := "so few cases leave it open"
	if x.AtLeast || y.AtLeast {
		why = "it is left open"
	}
	return fmt.Errorf("%s: %s: %s", c.text, why, strings.Join(append(open(x), open(y)...), ", "))
}

func ordered(op token.Token, x, y float64) bool {
	switch op {
	case token.LSS:
		return x < y
	case token.LEQ:
		return x <= y
	case token.GTR:
		return x > y
	}
	return x >= y
}

// open is the interval of a short rate, or a lower bound, in words.
func open(v Value) []string {
	if v.AtLeast {
		return []string{fmt.Sprintf("at least %.4g", v.Number)}
	}
	if !v.Short || v.Of == 0 {
		return nil
	}
	low, high := Interval(v)
	return []string{fmt.Sprintf("%.4g%% of %d can be %.4g..%.4g%%", 100*v.Number, v.Of, 100*low, 100*high)}
}

// both is && or ||: what one side decides alone needs no other.
type both struct {
	or   bool
	x, y node
}

func (both) condition() bool                { return true }
func (both) number(Measured) (Value, error) { return Value{}, errCondition }

func (b both) holds(m Measured) (bool, error) {
	x, errX := b.x.holds(m)
	y, errY := b.y.holds(m)
	switch {
	case errX == nil && x == b.or, errY == nil && y == b.or:
		return b.or, nil
	case errX != nil || errY != nil:
		return false, errors.Join(errX, errY)
	}
	return !b.or, nil
}

type call struct {
	name, text string
	f          function
	args       []node
}

func (c call) condition() bool { return c.f.holds != nil }

func (c call) values(m Measured) ([]Value, error) {
	var values []Value
	var errs []error
	for _, a := range c.args {
		v, err := a.number(m)
		values, errs = append(values, v), append(errs, err)
	}
	return values, cmp.Or(errors.Join(errs...), exact(values...))
}

func (c call) number(m Measured) (Value, error) {
	values, err := c.values(m)
	if err != nil {
		return Value{}, err
	}
	v := c.f.gives(values)
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return Value{}, fmt.Errorf("%s is no number", c.text)
	}
	return Value{Number: v}, nil
}

func (c call) holds(m Measured) (bool, error) {
	values, err := c.values(m)
	if err != nil {
		return false, err
	}
	return c.f.holds(values), nil
}
