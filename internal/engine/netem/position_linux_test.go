package netem

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"netemd/internal/target"
)

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
