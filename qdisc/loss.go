package qdisc

import (
	"math"
	"strings"
)

const (
	wantLossState = "p13, p31, p32, p23 and p14 with commas between, each 0%..100%, of which the last four can be left out: such as 1% or 1%,10%,5%,50%,0.1%"
	wantGemodel   = "p and r, and perhaps the loss when bad and when good, with commas between, each 0%..100%: such as 1%,10% or 1%,10%,90%,0.1%"
)

// ParseLossState reads "p13,p31,p32,p23,p14", such as "1%,10%,5%,50%,0.1%". What is
// left out at the end is what tc takes for it: p31 is 100 % less p13, p32 0 %, p23
// 100 % and p14 0 %. The error is a *FieldError without a Field.
func ParseLossState(s string) (LossState, error) {
	p, err := shares(s, 1, 5, wantLossState)
	if err != nil {
		return LossState{}, err
	}
	return lossStateOf(p), nil
}

// lossStateOf fills in what tc does.
func lossStateOf(p []Percent) LossState {
	s := LossState{P13: p[0], P31: complement(p[0]), P23: 100}
	for k, field := range []*Percent{&s.P13, &s.P31, &s.P32, &s.P23, &s.P14}[:len(p)] {
		*field = p[k]
	}
	return s
}

// ParseGilbertElliott reads "p,r[,1-h[,1-k]]", such as "1%,10%": the chances to go bad
// and good, then the loss in the bad state, 100 % when left out, and in the good one,
// 0 % when left out. The error is a *FieldError without a Field.
func ParseGilbertElliott(s string) (GilbertElliott, error) {
	p, err := shares(s, 2, 4, wantGemodel)
	if err != nil {
		return GilbertElliott{}, err
	}
	if len(p) > 2 && p[2] == 0 {
		return GilbertElliott{}, &FieldError{Value: s, Want: wantLossBad}
	}
	return gilbertElliottOf(p), nil
}

const wantLossBad = "a loss in the bad state above 0%; when only the good state loses, exchange them"

// gilbertElliottOf fills in what tc does.
func gilbertElliottOf(p []Percent) GilbertElliott {
	g := GilbertElliott{P: p[0], R: complement(p[0]), LossBad: 100}
	for k, field := range []*Percent{&g.P, &g.R, &g.LossBad, &g.LossGood}[:len(p)] {
		*field = p[k]
	}
	return g
}

// complement is 100 % less p, rounded as tc does it.
func complement(p Percent) Percent {
	return PercentOf(uint32(math.RoundToEven((1 - float64(p)/100) * math.MaxUint32)))
}

// shares reads from least to most percentages with commas between them.
func shares(s string, least, most int, want string) ([]Percent, error) {
	texts := strings.Split(s, ",")
	if len(texts) < least || len(texts) > most {
		return nil, &FieldError{Value: s, Want: want}
	}
	p := make([]Percent, len(texts))
	for k, text := range texts {
		var err error
		if p[k], err = ParsePercent(text); err != nil {
			return nil, &FieldError{Value: s, Want: want}
		}
	}
	return p, nil
}

// String is the text that ParseLossState reads back.
func (s LossState) String() string { return s.text(",") }

func (s LossState) text(between string) string {
	return join(between, s.P13, s.P31, s.P32, s.P23, s.P14)
}

// String is the text that ParseGilbertElliott reads back.
func (g GilbertElliott) String() string { return g.text(",") }

func (g GilbertElliott) text(between string) string {
	bad := g.LossBad
	if bad == 0 {
		bad = 100
	}
	switch {
	case g.LossGood != 0:
		return join(between, g.P, g.R, bad, g.LossGood)
	case bad != 100:
		return join(between, g.P, g.R, bad)
	}
	return join(between, g.P, g.R)
}

func join(between string, p ...Percent) string {
	texts := make([]string, len(p))
	for k := range p {
		texts[k] = p[k].String()
	}
	return strings.Join(texts, between)
}
