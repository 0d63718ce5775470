package try

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"netemd/internal/feature"
	"netemd/internal/testenv"
)

func TestNetem(t *testing.T) {
	f := Netem(t.Context())
	t.Logf("%+v", f)
	if f.Name != "sch_netem" || !strings.Contains(f.Detail, kernelRelease()) {
		t.Errorf("%+v does not name the kernel", f)
	}
	if f.State != feature.Yes && f.Hint == "" {
		t.Errorf("%s without a hint", f.State)
	}
	if os.Geteuid() != 0 {
		if f.State != feature.Inconclusive {
			t.Errorf("without root: %s, want inconclusive", f.State)
		}
		return
	}
	switch {
	case os.Getenv("NETEMD_TEST_NETEM") != "" && f.State != feature.Yes:
		t.Errorf("a kernel with sch_netem: %+v", f)
	case f.State == feature.No && !strings.Contains(f.Detail, "Specified qdisc kind is unknown"):
		t.Errorf("the kernel's own word is missing: %+v", f)
	case f.State == feature.Inconclusive:
		t.Errorf("as root: %+v", f)
	}
}

// The answer is the one that a test which needs netem gets.
func TestNetemAgrees(t *testing.T) {
	testenv.Netem(t)
	if f := Netem(t.Context()); f.State != feature.Yes {
		t.Errorf("%+v", f)
	}
}

func TestNetemHint(t *testing.T) {
	const running = "6.1.0-50-amd64"
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"debian":         {map[string]string{"etc/os-release": "PRETTY_NAME=\"Debian\"\nID=debian\n"}, "apt install linux-image-amd64"},
		"ubuntu":         {map[string]string{"etc/os-release": "ID_LIKE=debian\nID=ubuntu\n"}, "apt install linux-modules-extra-" + running},
		"fedora":         {map[string]string{"etc/os-release": "ID=fedora"}, "dnf install kernel-modules-extra-" + running},
		"like fedora":    {map[string]string{"etc/os-release": "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"}, "dnf install kernel-modules-extra-" + running},
		"another":        {map[string]string{"etc/os-release": "ID=alpine"}, "CONFIG_NET_SCH_NETEM"},
		"no os-release":  {nil, "CONFIG_NET_SCH_NETEM"},
		"newer modules":  {map[string]string{"lib/modules/6.1.0-53-amd64/kernel/net/sched/sch_netem.ko": ""}, "reboot into 6.1.0-53-amd64, or install the modules of " + running},
		"packed modules": {map[string]string{"usr/lib/modules/6.12.1/kernel/net/sched/sch_netem.ko.xz": ""}, "sch_netem is installed for 6.12.1, but this kernel is " + running},
		"own modules":    {map[string]string{"lib/modules/" + running + "/kernel/net/sched/sch_netem.ko": ""}, "modprobe sch_netem says why"},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			path := filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := netemHint(root, running); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
