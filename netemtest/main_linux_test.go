package netemtest_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"netemd/internal/testenv"
	"netemd/netemtest"
)

// TestMain looks for what the tests leave. The session that the first of them made has to end
// before, which nobody else needs to care for.
func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(m.Run()) // as without a TestMain
	}
	if os.Geteuid() != 0 && os.Getenv("NETEMD_TEST_ROOT") == "" {
		flag.Parse()
		_ = flag.Set("test.skip", "^Example") // an example cannot skip itself
	}
	os.Exit(testenv.Run(closing{m}))
}

type closing struct{ m *testing.M }

func (c closing) Run() int {
	code := c.m.Run()
	if err := netemtest.CloseSessions(); err != nil {
		fmt.Fprintln(os.Stderr, "the sessions' end:", err)
		code = max(code, 1)
	}
	return code
}
