package netem

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

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

func TestPosition(t *testing.T) {
	const all, ip = 3, 0x800
	head := func(kind string, preference, protocol uint16) filter {
		return filter{kind: kind, preference: preference, protocol: protocol, parent: 5}
	}
	theirs := func(kind string, preference, protocol uint16) filter {
		f := head(kind, preference, protocol)
		f.handle = 1
		return f
	}
	ours := filter{kind: "bpf", preference: 1, protocol: all, handle: filterHandle, cookie: "ntm00000000000", parent: 5}
	elsewhere := theirs("u32", 1, ip)
	elsewhere.chain = 7
	for name, c := range map[string]struct {
		all        []filter
		preference uint16
		handle     uint32
		ahead      []filter
	}{
		"nothing":          {nil, 1, filterHandle, nil},
		"foreign later":    {[]filter{theirs("u32", 2, ip)}, 1, filterHandle, nil},
		"foreign first":    {[]filter{head("flower", 1, ip), theirs("flower", 1, ip), theirs("u32", 2, ip)}, 3, filterHandle, []filter{theirs("flower", 1, ip), theirs("u32", 2, ip)}},
		"foreign bpf":      {[]filter{theirs("bpf", 1, all)}, 1, filterHandle, nil},
		"bpf, other proto": {[]filter{theirs("bpf", 1, ip)}, 2, filterHandle, []filter{theirs("bpf", 1, ip)}},
		"ours":             {[]filter{ours}, 1, filterHandle + 1, nil},
		"another chain":    {[]filter{elsewhere}, 1, filterHandle, nil},
	} {
		f, ahead := position(c.all, target.Egress)
		if f.preference != c.preference || f.handle != c.handle {
			t.Errorf("%s: preference %d, handle %x", name, f.preference, f.handle)
		}
		if diff := cmp.Diff(c.ahead, ahead, cmp.AllowUnexported(filter{})); diff != "" {
			t.Errorf("%s: ahead (-want +got):\n%s", name, diff)
		}
		if want := uint32(hookEgress); len(c.all) == 0 && f.parent != want || len(c.all) > 0 && f.parent != 5 {
			t.Errorf("%s: parent %x", name, f.parent)
		}
	}
}
