package netem

import (
	"testing"

	"github.com/cilium/ebpf"

	"netemd/internal/target"
)

// What failed after it had put another program in the old one's place leaves an entry
// that says so: the old one's number would stand for a program that is gone.
func TestRestore(t *testing.T) {
	first, second := new(ebpf.Program), new(ebpf.Program)
	old := &entry{program: first, number: 7, to: 3}
	before := detour{at: target.Place{Index: 2}, entry: old}

	x := before
	x.at.Index, x.entry = 5, &entry{program: second, number: 8, to: 4}
	x.restore(before)
	if x.at.Index != 2 || x.entry.program != second || x.entry.number != 0 || x.entry.to != 4 {
		t.Errorf("after the program was replaced: %+v, entry %+v", x, x.entry)
	}
	x = before
	x.entry = &entry{program: first, number: 0, to: 3} // Rematch's, before the replacement
	x.restore(before)
	if x.entry != old || old.number != 7 {
		t.Errorf("before the program was replaced: entry %+v", x.entry)
	}
	x = detour{entry: old}
	x.restore(detour{})
	if x.entry != nil {
		t.Errorf("a new one that failed: entry %+v", x.entry)
	}
}
