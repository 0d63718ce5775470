package ebpf

import (
	"context"
	"testing"

	"netemd/internal/feature"
	"netemd/internal/feature/try"
	"netemd/internal/testenv"
)

func hasTCX() bool { return try.TCX(context.Background()).State == feature.Yes }

// needTCX skips a test where the kernel has no tcx, which came with Linux 6.6.
func needTCX(t testing.TB) {
	t.Helper()
	testenv.Root(t)
	if f := try.TCX(context.Background()); f.State != feature.Yes {
		t.Skipf("needs tcx (Linux 6.6): %s", f.Detail)
	}
}
