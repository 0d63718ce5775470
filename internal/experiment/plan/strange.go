package plan

import (
	"reflect"
	"slices"
	"strings"

	"netemd/probe"
	"netemd/qdisc"
)

// kinds are the kinds of probes that a key of the load is of; the others are of all.
var kinds = map[string][]string{
	"mode":         {probe.KindPostgres, probe.KindTCP, probe.KindGRPC},
	"pool":         {probe.KindPostgres},
	"query":        {probe.KindPostgres},
	"write":        {probe.KindPostgres},
	"idempotent":   {probe.KindPostgres},
	"keep":         {probe.KindTCP, probe.KindHTTP},
	"http":         {probe.KindHTTP},
	"read_timeout": {probe.KindHTTP},
	"method":       {probe.KindHTTP},
	"path":         {probe.KindHTTP},
	"bytes":        {probe.KindTCP, probe.KindUDP, probe.KindHTTP, probe.KindGRPC},
	"messages":     {probe.KindGRPC},
}

// strange refuses keys that would silently do nothing.
func (r *reader) strange(key string, l load) {
	kind := l.Probe
	if kind == "" {
		kind = probe.KindPostgres
	}
	for field, v := range reflect.ValueOf(l).Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		of, special := kinds[name]
		switch {
		case v.IsZero():
		case special && !slices.Contains(of, kind):
			r.strangeKey(key+"."+name, "is of "+strings.Join(of, ", ")+", and the probe is "+kind)
		case name == "arrival" && l.Rate == 0:
			r.strangeKey(key+"."+name, "is of an open loop, which has a rate")
		case name == "arrival" && l.Arrival != "constant" && l.Arrival != "poisson":
			r.refuse(key+"."+name, l.Arrival, "constant or poisson")
		case (name == "concurrency" || name == "pace") && l.Rate > 0:
			r.strangeKey(key+"."+name, "is of a closed loop: with a rate calls start when they are due")
		}
	}
}

func (r *reader) strangeKey(key, why string) {
	r.errs = append(r.errs, &qdisc.FieldError{Field: key, Why: why, Want: "the key left out"})
}

// inherit gives a case what the plan says of the load and it does not, but for what is of
// another kind of probe or loop than it names itself.
func (l *load) inherit(from load) {
	if l.Probe != "" && l.Probe != from.Probe {
		from = load{
			Target: from.Target, Layer: from.Layer, Concurrency: from.Concurrency, Pace: from.Pace, Rate: from.Rate,
			Arrival: from.Arrival, Timeout: from.Timeout, Slow: from.Slow, Policy: from.Policy,
		}
	}
	switch {
	case l.Rate > 0:
		from.Concurrency, from.Pace = 0, nil
	case l.Concurrency > 0 || l.Pace != nil:
		from.Rate, from.Arrival = 0, ""
	}
	over(l, from)
}
