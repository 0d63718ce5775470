package policy

import (
	"testing"

	"netemd/probe"
)

// TestResetBeforeTheTimeout: a call that was reset before its timeout was reset, also
// when its client comes back from parting after it.
func TestResetBeforeTheTimeout(t *testing.T) {
	for _, test := range []struct {
		answer string
		want   probe.Class
	}{
		{"reset@450ms", probe.Reset},
		{"hang", probe.Timeout},
	} {
		inWorld(t, Policy{CallTimeout: 500 * ms}, Options{}, func(w *world) {
			w.peer.parting = 100 * ms
			w.peer.answer(test.answer)
			if s := w.call(0); s.Class != test.want {
				t.Errorf("%s: %s, want %s", test.answer, told(s), test.want)
			}
		})
	}
}
