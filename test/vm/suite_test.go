//go:build linux

package vm

import (
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
