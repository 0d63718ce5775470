package try

import (
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"netemd/internal/feature"
	"netemd/internal/testenv"
)

func TestIFB(t *testing.T) {
	testenv.Root(t)
	before, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	f := IFB(t.Context())
	t.Logf("%+v", f)
	switch {
	case f.Name != IFBName, f.State == feature.Inconclusive, f.State != feature.Yes && f.Hint == "":
		t.Errorf("%+v", f)
	case os.Getenv("NETEMD_TEST_NETEM") != "" && f.State != feature.Yes:
		t.Errorf("a kernel with sch_netem: %+v", f)
	case os.Getenv("NETEMD_TEST_KERNEL") == "6.12" && !strings.HasPrefix(f.Detail, "a tcx program, and a filter"),
		os.Getenv("NETEMD_TEST_KERNEL") == "6.1" && !strings.HasPrefix(f.Detail, "a filter at a clsact"):
		t.Errorf("not the ways of this kernel: %+v", f)
	case f.State == feature.No && !strings.Contains(f.Detail, "ifb"):
		t.Errorf("it does not say what is missing: %+v", f)
	}
	after, err := netlink.LinkList()
	if err != nil || len(after) != len(before) {
		t.Errorf("%d devices before, %d after, %v", len(before), len(after), err)
	}
}
