package try

import (
	"context"
	"strings"
	"testing"

	"netemd/internal/feature"
	"netemd/internal/testenv"
)

// Both directions work on every kernel that the tests run on.
func TestCgroup(t *testing.T) {
	testenv.Root(t)
	if f := Cgroup(context.Background()); f.State != feature.Yes || !strings.Contains(f.Detail, "/sys/fs/cgroup") {
		t.Errorf("%+v", f)
	}
}
