package agent

import (
	"errors"
	"testing"

	netemv1 "netemd/api/netem/v1"
	"netemd/internal/access"
	"netemd/internal/fault"
)

// Every method of the API has a verb, and what has none is refused.
func TestMethodVerbs(t *testing.T) {
	known := map[string]bool{}
	services := netemv1.File_api_netem_v1_netem_proto.Services()
	for i := range services.Len() {
		s := services.Get(i)
		for j := range s.Methods().Len() {
			name := string(s.Name()) + "/" + string(s.Methods().Get(j).Name())
			known[name] = true
			if _, ok := verbOf(api + name); !ok {
				t.Errorf("%s has no verb", name)
			}
		}
	}
	if len(known) < 20 {
		t.Fatalf("%d methods", len(known))
	}
	for name := range methodVerbs {
		if !known[name] {
			t.Errorf("there is no %s", name)
		}
	}
	policy, err := access.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := bare(t, policy)
	c := &call{method: api + "Faults/New", known: true}
	c.verb, c.listed = verbOf(c.method)
	if err := a.begin(t.Context(), c, &netemv1.ListRequest{}); !errors.Is(err, fault.ErrDenied) {
		t.Errorf("a method without a verb, by root: %v", err)
	}
}
