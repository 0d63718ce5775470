package model

import (
	"math"

	"netemd/qdisc"
)

// The kinds of loss, as the kernel numbers them (CLG_RANDOM and so on,
// net/sched/sch_netem.c).
const (
	Independent    = 0
	FourState      = 1
	GilbertElliott = 2
)

// The states, as the kernel numbers them.
const (
	// Of the 4-state model.
	SentInGap   = 1
	SentInBurst = 2
	LostInGap   = 3
	LostInBurst = 4
	// Of Gilbert-Elliott.
	Good = 1
	Bad  = 2
	// Begin is the first state of both.
	Begin = 1
)

// Chain is a loss with a memory, and its state: netem's 4-state Markov model
// (loss_4state) or Gilbert-Elliott (loss_gilb_ell). The zero value loses nothing.
type Chain struct {
	Kind uint32
	// A are the kernel's a1 to a5 (struct clgstate), as shares of 2^32-1: p13, p31,
	// p32, p14 and p23, or p, r, h and 1-k.
	A     [5]uint32
	State uint32
}

// NewChain is the chain of n, whose Kind is Independent when it has none.
func NewChain(n qdisc.Netem) Chain {
	n = n.Normalize()
	switch s, g := n.LossState, n.GilbertElliott; {
	case s != qdisc.LossState{}:
		return Chain{FourState, [5]uint32{s.P13.Fraction(), s.P31.Fraction(), s.P32.Fraction(), s.P14.Fraction(), s.P23.Fraction()}, Begin}
	case g != qdisc.GilbertElliott{}:
		return Chain{GilbertElliott, [5]uint32{g.P.Fraction(), g.R.Fraction(), math.MaxUint32 - g.LossBad.Fraction(), g.LossGood.Fraction()}, Begin}
	}
	return Chain{}
}

// Apply gives n the loss that c stands for.
func (c Chain) Apply(n *qdisc.Netem) {
	p := func(i int) qdisc.Percent { return qdisc.PercentOf(c.A[i]) }
	n.LossState, n.GilbertElliott = qdisc.LossState{}, qdisc.GilbertElliott{}
	switch c.Kind {
	case FourState:
		n.LossState = qdisc.LossState{P13: p(0), P31: p(1), P32: p(2), P14: p(3), P23: p(4)}
	case GilbertElliott:
		n.GilbertElliott = qdisc.GilbertElliott{P: p(0), R: p(1), LossBad: qdisc.PercentOf(math.MaxUint32 - c.A[2]), LossGood: p(3)}
	}
}

// Lost moves on by one packet and reports whether it is lost. draw gives uniform
// numbers: one for each packet of the 4-state model, two of Gilbert-Elliott.
func (c *Chain) Lost(draw func() uint32) bool {
	switch c.Kind {
	case FourState:
		return c.fourState(draw())
	case GilbertElliott:
		return c.gilbertElliott(draw(), draw())
	}
	return false
}

// fourState has the kernel's edges: a number that equals a bound moves nowhere.
func (c *Chain) fourState(r uint32) bool {
	p13, p31, p32, p14, p23 := c.A[0], c.A[1], c.A[2], c.A[3], c.A[4]
	switch c.State {
	case SentInGap:
		switch {
		case r < p14:
			c.State = LostInGap
			return true
		case r > p14 && r < p13+p14:
			c.State = LostInBurst
			return true
		}
	case SentInBurst:
		if r < p23 {
			c.State = LostInBurst
			return true
		}
	case LostInBurst:
		switch {
		case r < p32:
			c.State = SentInBurst
		case r > p32 && r < p31+p32:
			c.State = SentInGap
		case r > p31+p32:
			return true
		}
	case LostInGap:
		c.State = SentInGap
	}
	return false
}

// gilbertElliott draws the loss from the state before the step.
func (c *Chain) gilbertElliott(step, loss uint32) bool {
	p, r, h, k := c.A[0], c.A[1], c.A[2], c.A[3]
	if c.State == Bad {
		if step < r {
			c.State = Good
		}
		return loss > h
	}
	if step < p {
		c.State = Bad
	}
	return loss < k
}
