package twosample

import "testing"

// Level is the chance that samples of one distribution are said to differ, over all the
// comparisons of a family together (Bonferroni).
const Level = 1e-3

// Family gathers comparisons. The zero value is ready. It is not safe for concurrent use.
type Family struct{ verdicts []verdict }

type verdict struct {
	name  string
	p     float64
	power bool
}

// Same adds a comparison of what has to be the same.
func (f *Family) Same(name string, p float64) {
	f.verdicts = append(f.verdicts, verdict{name, p, false})
}

// Differ adds a comparison of what is known to differ: where it is not told apart, the
// comparisons of this kind say nothing.
func (f *Family) Differ(name string, p float64) {
	f.verdicts = append(f.verdicts, verdict{name, p, true})
}

// Judge fails the test for each comparison that came out wrong, and for a family of none.
func (f *Family) Judge(t testing.TB) {
	t.Helper()
	if len(f.verdicts) == 0 {
		t.Error("nothing was compared")
		return
	}
	level := Level / float64(len(f.verdicts))
	for _, v := range f.verdicts {
		switch {
		case !v.power && v.p < level:
			t.Errorf("%s differ: p %.3g, below %.3g", v.name, v.p, level)
		case v.power && v.p >= level:
			t.Errorf("%s: p %.3g: the test cannot tell", v.name, v.p)
		}
	}
	t.Logf("%d comparisons at a level of %.2g each", len(f.verdicts), level)
}
