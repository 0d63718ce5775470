package lab

import (
	"errors"
	"strings"
	"testing"

	"netemd/internal/target"
)

func TestFindTarget(t *testing.T) {
	all := []target.Target{{Lab: "pg", Name: "pg"}, {Lab: "copy", Name: "pg"}, {Lab: "shop", Name: "api"}}
	for _, c := range []struct {
		name, key string
		is        error
		words     string
	}{
		{"pg", "", ErrAmbiguous, "it is one of pg/pg, copy/pg"},
		{"pg/pg", "pg", nil, ""},
		{"copy/pg", "copy/pg", nil, ""},
		{"api", "shop/api", nil, ""},
		{"shop/pg", "", target.ErrUnknown, `unknown target "shop/pg"`},
		{"", "", target.ErrUnknown, ""},
	} {
		got, err := FindTarget(all, c.name)
		if !errors.Is(err, c.is) || err == nil && got.Key() != c.key || err != nil && !strings.Contains(err.Error(), c.words) {
			t.Errorf("%q: %q, %v; want %q, %v %q", c.name, got.Key(), err, c.key, c.is, c.words)
		}
		if err != nil {
			continue
		}
		if kept, ok := KeptTarget(all, got.Key()); !ok || kept.Lab != got.Lab {
			t.Errorf("%q: kept as %q, which is %v", c.name, got.Key(), kept)
		}
	}
}
