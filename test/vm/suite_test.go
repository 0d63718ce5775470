//go:build linux

package vm

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestOutcomes(t *testing.T) {
	const output = `6.1.0-cloud-amd64

@@netemd-vm begin qdisc
=== RUN   TestA
--- PASS: TestA (0.00s)
--- SKIP: TestB (0.00s)
PASS

@@netemd-vm end qdisc 0

@@netemd-vm begin internal/lab
--- SKIP: TestC (0.00s)
PASS
@@netemd-vm end internal/lab 0
@@netemd-vm begin internal/evidence
--- FAIL: TestD (0.00s)
    --- FAIL: TestD/sub (0.00s)
FAIL
@@netemd-vm end internal/evidence 1
@@netemd-vm begin test/e2e
--- PASS: TestE (0.00s)
`
	type row struct {
		Package               string
		Exit                  int
		Passed, Failed, Skips int
		Err                   string
	}
	var got []row
	for _, o := range Outcomes(output) {
		r := row{o.Package, o.Exit, o.Passed, o.Failed, o.Skips, ""}
		if err := o.Err(); err != nil {
			r.Err = err.Error()
		}
		got = append(got, r)
	}
	want := []row{
		{"qdisc", 0, 1, 0, 1, ""},
		{"internal/lab", 0, 0, 0, 1, "nothing was run: 1 skipped"},
		{"internal/evidence", 1, 0, 1, 0, "exit code 1, 1 failed"},
		{"test/e2e", -1, 1, 0, 0, "exit code -1, 0 failed"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	if o := Outcomes(output)[0].Output; !strings.HasPrefix(o, "=== RUN   TestA\n") {
		t.Errorf("output starts with %.20q", o)
	}
}

func TestGuestThatDied(t *testing.T) {
	suites := []Suite{{Package: "a"}, {Package: "b"}, {Package: "c"}}
	begin := func(p string) string { return "\n" + beginMark + p + "\n" }
	end := func(p, code string) string {
		return begin(p) + "--- PASS: TestX (0.00s)\n\n" + endMark + p + " " + code + "\n"
	}
	died := &DiedError{Err: errors.New("no code")}
	other := errors.New("no kernel")
	for _, c := range []struct {
		name  string
		boots []string
		errs  []error
		err   error
		left  [][]string // the suites of each boot
		fails []string
	}{
		{"lives", []string{end("a", "0") + end("b", "0") + end("c", "0")}, []error{nil}, nil, [][]string{{"a", "b", "c"}}, nil},
		{"other error", []string{""}, []error{other}, other, [][]string{{"a", "b", "c"}}, []string{"a", "b", "c"}},
		{
			"dies once",
			[]string{end("a", "0") + begin("b"), end("b", "0") + end("c", "0")}, []error{died, nil}, nil,
			[][]string{{"a", "b", "c"}, {"b", "c"}}, nil,
		},
		{
			"dies, and fails after it",
			[]string{end("a", "0") + begin("b"), end("b", "1") + end("b", "0") + end("c", "0")}, []error{died, nil}, nil,
			[][]string{{"a", "b", "c"}, {"b", "c"}}, []string{"b"},
		},
		{
			"a double failure is not tried again",
			[]string{end("a", "1") + end("a", "1") + begin("b"), end("b", "0") + end("c", "0")}, []error{died, nil}, nil,
			[][]string{{"a", "b", "c"}, {"b", "c"}}, []string{"a"},
		},
		{
			"dies twice",
			[]string{end("a", "0") + begin("b"), begin("b")}, []error{died, died}, died,
			[][]string{{"a", "b", "c"}, {"b", "c"}}, []string{"b", "c"},
		},
	} {
		var left [][]string
		said, err := runSuites(suites, func(s []Suite) (string, error) {
			names := make([]string, len(s))
			for i := range s {
				names[i] = s[i].Package
			}
			left = append(left, names)
			return c.boots[len(left)-1], c.errs[len(left)-1]
		})
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%s: error %v, want %v", c.name, err, c.err)
		}
		if diff := cmp.Diff(c.left, left); diff != "" {
			t.Errorf("%s: suites booted (-want +got):\n%s", c.name, diff)
		}
		var fails []string
		for _, s := range suites {
			if _, err := s.judge(Outcomes(said)); err != nil {
				fails = append(fails, s.Package)
			}
		}
		if !slices.Equal(fails, c.fails) {
			t.Errorf("%s: failed %v, want %v", c.name, fails, c.fails)
		}
	}
}
