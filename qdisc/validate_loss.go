package qdisc

import (
	"math"
	"strings"
)

// loss checks the kinds of loss, of which one is given at most.
func (v *validation) loss(n Netem) {
	random := n.Loss != 0 || n.LossCorrelation != 0
	state, gemodel := n.LossState != LossState{}, n.GilbertElliott != GilbertElliott{}
	if flag(random)+flag(state)+flag(gemodel) > 1 {
		v.severalLosses(random, state, gemodel)
	}
	v.share("loss", n.Loss, n.LossCorrelation)
	if state {
		v.lossState(n.LossState)
	}
	if gemodel {
		v.gilbertElliott(n.GilbertElliott)
	}
	if n.ECN && !random && !state && !gemodel {
		v.refuse("ecn", "", "a loss, whose packets it marks instead, such as loss 1%")
	}
}

func (v *validation) severalLosses(random, state, gemodel bool) {
	var kinds []string
	for _, k := range []struct {
		given bool
		name  string
	}{{random, "loss"}, {state, "loss.state"}, {gemodel, "loss.gemodel"}} {
		if k.given {
			kinds = append(kinds, k.name)
		}
	}
	v.refuse(kinds[1], strings.Join(kinds, " and "), "one kind of loss: random (loss), 4-state (loss state) or Gilbert-Elliott (loss gemodel)")
}

func (v *validation) lossState(s LossState) {
	v.percent("loss.state.p13", s.P13)
	v.percent("loss.state.p31", s.P31)
	v.percent("loss.state.p32", s.P32)
	v.percent("loss.state.p23", s.P23)
	v.percent("loss.state.p14", s.P14)
	if s.P13 == 0 && s.P14 == 0 {
		v.refuse("loss.state.p13", s.P13.String(), "a share above 0%, or a p14 above 0%: without either, nothing is ever lost")
	}
	if over100(s.P13, s.P14) {
		v.refuse("loss.state.p14", s.P14.String(), "p13 and p14 of 100% at most together")
	}
	if over100(s.P31, s.P32) {
		v.refuse("loss.state.p32", s.P32.String(), "p31 and p32 of 100% at most together")
	}
}

// over100 reports whether both are more than 100 % by more than the encoding's
// rounding.
func over100(a, b Percent) bool {
	return uint64(a.Fraction())+uint64(b.Fraction()) > math.MaxUint32+1
}

func (v *validation) gilbertElliott(g GilbertElliott) {
	v.percent("loss.gemodel.p", g.P)
	v.percent("loss.gemodel.r", g.R)
	v.percent("loss.gemodel.loss_bad", g.LossBad)
	v.percent("loss.gemodel.loss_good", g.LossGood)
	if g.P == 0 {
		v.refuse("loss.gemodel.p", g.P.String(), "a share above 0%, the chance of a packet to begin a bad time")
	}
}

func (v *validation) percent(field string, p Percent) {
	if !p.valid() {
		v.refuse(field, p.String(), wantPercent)
	}
}
