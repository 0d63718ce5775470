package fault

import (
	"reflect"
	"testing"
)

// Add and Since forget no counter.
func TestCountersAddUp(t *testing.T) {
	var a, b, sum Counters
	set := func(c *Counters, n func(i int) uint64) {
		for i := range reflect.TypeFor[Counters]().NumField() {
			reflect.ValueOf(c).Elem().Field(i).SetUint(n(i))
		}
	}
	set(&a, func(i int) uint64 { return uint64(i + 1) })
	set(&b, func(i int) uint64 { return uint64(100 * (i + 1)) })
	set(&sum, func(i int) uint64 { return uint64(101 * (i + 1)) })
	if got := a.Add(b); got != sum {
		t.Errorf("Add: %+v, want %+v", got, sum)
	}
	if got := sum.Since(b); got != a {
		t.Errorf("Since: %+v, want %+v", got, a)
	}
}
