package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const shopPlan = `experiment: shop
version: 1
lab: echo
command: {node: client, limit: 30s}
repeats: 1
phases: {control: command, fault: command, recovery: command}
faults: [{target: http, impairment: {loss: 100%}}]
kpis:
  - {must: "command == 0 && tests_run == 2 in control"}
  - {must: "tests[TestGet] == 1 && tests[TestNothing] == 0 && tests_failed == 1"}
  - {must: command == 0 in recovery}
`

const shopTest = `package shop

import (
	"net/http"
	"os"
	"testing"
	"time"
)

func TestGet(t *testing.T) {
	c := http.Client{Timeout: 500 * time.Millisecond}
	r, err := c.Get("http://" + os.Getenv("NETEMD_SERVICE_WEB") + "/")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
}

func TestNothing(t *testing.T) {}
`

// TestRunCommand has a suite of Go tests run in the phases of a plan, in a node of a lab that is
// made for it.
func TestRunCommand(t *testing.T) {
	a := start(t)
	dir := t.TempDir()
	for name, text := range map[string]string{"shop.yaml": shopPlan, "shop_test.go": shopTest, "go.mod": "module shop\n\ngo 1.26\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "out")
	r := a.ctl("run", filepath.Join(dir, "shop.yaml"), "--out", out, "--", "go", "test", "-C", dir, "-count=1", "./...")
	if r.code != 0 || !strings.Contains(r.stdout, "1 of 2 tests failed in no phase.") {
		t.Errorf("exit code %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if !strings.Contains(r.stderr, "[all fault 1]     shop_test.go:14: Get ") {
		t.Errorf("told\n%s", r.stderr)
	}
}
