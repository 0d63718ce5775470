package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const suitePlan = `experiment: mine
version: 1
repeats: 1
seed: 3
phases: {control: command, fault: command, recovery: command}
faults: [{target: pg, impairment: {loss: 20%}}]
kpis:
  - {must: command == 0 in control}
  - {must: tests_failed == 0 in recovery}
  - {must: "tests[TestPay] == 1"}
`

// TestRunCommandInPhases has 'go test' run in each phase, of which a test fails beside the fault.
func TestRunCommandInPhases(t *testing.T) {
	dir := t.TempDir()
	plan := filepath.Join(dir, "mine.yaml")
	if err := os.WriteFile(plan, []byte(suitePlan), 0o600); err != nil {
		t.Fatal(err)
	}
	w := world{agent: newFakeAgent()}
	var said []string
	w.group = func(_ context.Context, c Command) (int, error) {
		said = append(said, strings.Join(c.Argv, " ")+" "+strings.Join(c.Env, " "))
		state := "pass"
		if len(w.agent.faults) > 0 {
			state = "fail"
		}
		fmt.Fprintf(c.Stdout, `{"Action":"run","Package":"shop","Test":"TestPay"}
{"Action":"output","Package":"shop","Test":"TestPay","Output":"--- paying\n"}
{"Action":%q,"Package":"shop","Test":"TestPay"}
{"Action":"pass","Package":"shop","Test":"TestList"}
`, state)
		if state == "fail" {
			return 1, nil
		}
		return 0, nil
	}
	out := filepath.Join(dir, "out")
	if code := w.run(t.Context(), "run", plan, "--out", out, "--", "go", "test", "./..."); code != exitDone {
		t.Fatalf("exit code %d\n%s\n%s", code, w.stdout.String(), w.stderr.String())
	}
	if len(said) != 3 || !strings.HasPrefix(said[1], "go test -json ./... NETEMD_EXPERIMENT=mine NETEMD_CASE=all NETEMD_PHASE=fault NETEMD_REPEAT=1 NETEMD_SEED=") ||
		!strings.Contains(said[1], " NETEMD_HOLD=") || strings.Contains(said[0], "NETEMD_HOLD") {
		t.Errorf("%q", said)
	}
	for _, want := range []string{"all control        0       2       0", "all fault 1        1       1       1", "TestPay           ok           failed     ok", "1 of 2 tests failed in no phase."} {
		if !strings.Contains(w.stdout.String(), want) {
			t.Errorf("%q is not in\n%s", want, w.stdout.String())
		}
	}
	if !strings.Contains(w.stderr.String(), "[all fault 1] --- paying\n") {
		t.Errorf("told %s", w.stderr.String())
	}
	if text, err := os.ReadFile(filepath.Join(out, "command", "all-fault-1.log")); err != nil || string(text) != "--- paying\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestRunCommandJUnit has a command that writes a file, and one that leaves an old one.
func TestRunCommandJUnit(t *testing.T) {
	dir := t.TempDir()
	plan, file := filepath.Join(dir, "mine.yaml"), filepath.Join(dir, "junit.xml")
	if err := os.WriteFile(plan, []byte(strings.Replace(suitePlan, "tests[TestPay] == 1", "tests[pays] == 0", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for writes, want := range map[bool]int{true: exitDone, false: exitInconclusive} {
		w := world{agent: newFakeAgent()}
		_ = os.Remove(file)
		w.group = func(context.Context, Command) (int, error) {
			if writes {
				return 0, os.WriteFile(file, []byte(`<testsuite><testcase name="pays"/></testsuite>`), 0o600)
			}
			return 0, nil
		}
		if code := w.run(t.Context(), "run", plan, "--junit", file, "--", "pytest"); code != want {
			t.Errorf("writes %v: exit code %d, want %d\n%s%s", writes, code, want, w.stdout.String(), w.stderr.String())
		}
	}
}

func TestRunCommandUsage(t *testing.T) {
	plan := filepath.Join(t.TempDir(), "mine.yaml")
	if err := os.WriteFile(plan, []byte(suitePlan), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", plan}, "the phases of mine are a command, and there is none"},
		{[]string{"run", plan, "--"}, "want a command after --"},
		{[]string{"run", "pg/loss-tail", "--", "true"}, "the phases of pg/loss-tail are no command"},
		{[]string{"run", "pg/loss-tail", "--junit", "x.xml"}, "--junit is of a command"},
	} {
		w := world{agent: newFakeAgent()}
		if code := w.run(t.Context(), c.args...); code != exitUsage || !strings.Contains(w.stderr.String(), c.want) {
			t.Errorf("%v: exit code %d, %s", c.args, code, w.stderr.String())
		}
	}
}
