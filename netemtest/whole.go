package netemtest

import (
	"reflect"

	"netemd/qdisc"
)

// whole is the patch that makes every impairment n: a Patch has the fields of a Netem, each as
// a pointer. Of these two 0 is what was not said, and the agent knows better.
func whole(n qdisc.Netem) (p qdisc.Patch) {
	from, to := reflect.ValueOf(&n).Elem(), reflect.ValueOf(&p).Elem()
	for i := range to.NumField() {
		to.Field(i).Set(from.FieldByName(to.Type().Field(i).Name).Addr())
	}
	if n.Limit == 0 {
		p.Limit = nil
	}
	if n.Seed == 0 {
		p.Seed = nil
	}
	return p
}
