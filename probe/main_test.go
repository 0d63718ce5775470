package probe

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// long says that tests may take minutes.
var long = os.Getenv("NETEMD_TEST_LONG") != ""
