package qdisc

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFew(t *testing.T) {
	var many []string
	for i := range 23 {
		many = append(many, fmt.Sprintf("v%02d", 22-i))
	}
	for _, c := range []struct {
		names []string
		want  string
	}{
		{nil, ""},
		{[]string{"b", "a"}, "a, b"},
		{many[3:], "v00, v01, v02, v03, v04, v05, v06, v07, v08, v09, v10, v11, v12, v13, v14, v15, v16, v17, v18, v19"},
		{many, "v00, v01, v02, v03, v04, v05, v06, v07, v08, v09, v10, v11, v12, v13, v14, v15, v16, v17, v18, v19 and 3 more"},
	} {
		given := strings.Join(c.names, ", ")
		if d := cmp.Diff(c.want, Few(c.names)); d != "" {
			t.Errorf("%d names (-want +got):\n%s", len(c.names), d)
		}
		if now := strings.Join(c.names, ", "); now != given {
			t.Errorf("the caller's names are in another order: %s", now)
		}
	}
	if got := First(2, many); got != "v22, v21 and 21 more" {
		t.Errorf("the first 2: %s", got)
	}
}
