package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"netemd/internal/fault"
)

// mended has the right checksum in each line, so that a mutation gets beyond it.
func mended(text []byte) []byte {
	lines := bytes.Split(text, []byte("\n"))
	for i, l := range lines {
		if len(l) > sumLength {
			lines[i] = fmt.Appendf(nil, "%x %s", sumOf(l[sumLength:]), l[sumLength:])
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// Whatever the file holds, it opens; what was read is what the life after reads, whole, and
// what is written then is read, too.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, text []byte, mend bool) {
		if mend {
			text = mended(text)
		}
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, Name), text, 0o600))
		j, last, err := Open(dir)
		must(t, err)
		defer j.Close()
		s := newState(j.state.boot)
		compacted, err := os.ReadFile(j.path)
		must(t, err)
		s.read(compacted)
		if s.torn+s.damaged > 0 {
			t.Fatalf("%d torn, %d damaged after it was written anew:\n%q", s.torn, s.damaged, compacted)
		}
		last.Torn, last.Damaged = 0, 0
		moving := cmpopts.IgnoreFields(fault.Fault{}, "Expires") // by the clock
		if diff := cmp.Diff(last, s.told(), moving, sameFault); diff != "" {
			t.Fatalf("the life after reads something else (-want +got):\n%s", diff)
		}
		for _, e := range last.Open {
			must(t, j.End(t.Context(), e.Fault.ID, fault.Cleared))
		}
		must(t, j.Intend(t.Context(), sample("new"), places))
		must(t, j.Close())
		again, third, err := Open(dir)
		must(t, err)
		defer again.Close()
		if len(third.Open) != 1 || third.Open[0].Fault.ID != "new" || len(third.Open[0].Places) != len(places) {
			t.Fatalf("after an end of all and a new one: %+v", third.Open)
		}
	})
}
