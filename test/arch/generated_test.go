package arch

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// protocLine names the protoc that was used, which differs by distribution.
var protocLine = regexp.MustCompile(`(?m)^// (- )?\s*protoc\s.*\n`)

func TestGeneratedCodeIsFresh(t *testing.T) {
	if _, err := exec.LookPath("protoc"); err != nil {
		if os.Getenv("NETEMD_TEST_VMS") != "" { // make test installs it
			t.Fatal("protoc is missing: scripts/install.sh test")
		}
		t.Skip("needs protoc: apt-get install protobuf-compiler")
	}
	dir := t.TempDir()
	run(t, nil, "scripts/generate.sh", dir)
	files, err := filepath.Glob(filepath.Join(dir, "api/netem/v1/*.go"))
	if err != nil || len(files) < 2 {
		t.Fatalf("%d generated files, want at least 2 (%v)", len(files), err)
	}
	for _, f := range files {
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join("api/netem/v1", filepath.Base(f))
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(protocLine.ReplaceAllString(string(want), ""), protocLine.ReplaceAllString(string(got), "")); diff != "" {
			t.Errorf("%s is not what make generate writes (-fresh +committed):\n%s", name, diff)
		}
	}
}
