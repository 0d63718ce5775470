package netem

import (
	"strings"
	"testing"

	"netemd/internal/target"
)

func TestRecord(t *testing.T) {
	for state, want := range map[string]string{
		"/run/netemd":            "netemd1 state=/run/netemd dev=7 hook=ingress clsact=new",
		"/run/a b":               "netemd1 state=sha256:" + digest("/run/a b")[:16] + " dev=7 hook=ingress clsact=new",
		"":                       "netemd1 state=sha256:" + digest("")[:16] + " dev=7 hook=ingress clsact=new",
		strings.Repeat("x", 200): "netemd1 state=sha256:" + digest(strings.Repeat("x", 200))[:16] + " dev=7 hook=ingress clsact=new",
	} {
		r := record{state: mark(state), device: 7, hook: target.Ingress, madeClsact: true}
		if r.String() != want {
			t.Errorf("%q: %q, want %q", state, r, want)
		}
		if back, ok := parseRecord(r.String()); !ok || back != r {
			t.Errorf("%q: back %+v, %t", state, back, ok)
		}
	}
	r := record{state: "a", device: 7, hook: target.Egress, tcx: true}
	if back, ok := parseRecord("netemd1 state=a dev=7 hook=egress by=tcx"); !ok || back != r || r.String() != "netemd1 state=a dev=7 hook=egress by=tcx" {
		t.Errorf("by tcx: %q, back %+v, %t", r, back, ok)
	}
	for _, alias := range []string{"", "uplink", "netemd1", "netemd1 state=a", "netemd1 state=a dev=0 hook=egress", "netemd1 state=a dev=7", "netemd2 state=a dev=7 hook=egress"} {
		if r, ok := parseRecord(alias); ok {
			t.Errorf("%q is taken for %+v", alias, r)
		}
	}
	longest := record{state: strings.Repeat("x", maxState), device: 1<<31 - 1, hook: target.Ingress}
	if n := len(longest.String()); n > 255 {
		t.Errorf("an alias of %d bytes", n)
	}
}

func FuzzRecord(f *testing.F) {
	f.Add("netemd1 state=/run/netemd dev=7 hook=egress clsact=new")
	f.Add("netemd1 state=/run/netemd dev=7 hook=egress by=tcx clsact=new")
	f.Fuzz(func(t *testing.T, alias string) {
		r, ok := parseRecord(alias)
		if !ok {
			return
		}
		if back, ok := parseRecord(r.String()); !ok || back != r {
			t.Errorf("%q: %+v, back %+v, %t", alias, r, back, ok)
		}
	})
}

func TestIFBName(t *testing.T) {
	p := target.Place{Namespace: "a", Index: 3, Hook: target.Egress}
	q := p
	q.Hook = target.Ingress
	name := ifbName(mark("s"), p, 0)
	if len(name) != 14 || !ourName(name, mark("s")) || ourName(name, mark("another")) || ourName("ntm0", mark("s")) {
		t.Errorf("name %q", name)
	}
	if name != ifbName(mark("s"), p, 0) || name == ifbName(mark("s"), q, 0) || name == ifbName(mark("s"), p, 1) || name == ifbName(mark("z"), p, 0) {
		t.Errorf("name %q is not one of its own", name)
	}
}
