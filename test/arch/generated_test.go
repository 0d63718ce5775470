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
		t.Skip("needs protoc: apt-get install protobuf-compiler libprotobuf-dev")
	}
	dir := t.TempDir()
	run(t, nil, "scripts/generate.sh", dir)
	files, err := filepath.Glob(filepath.Join(dir, "api/netem/v1/*.go"))
	more, err2 := filepath.Glob(filepath.Join(dir, "probe/grpc/echo/*.go"))
	if err != nil || err2 != nil || len(files) < 2 || len(more) < 2 {
		t.Fatalf("%d and %d generated files, want at least 2 of each (%v, %v)", len(files), len(more), err, err2)
	}
	for _, f := range append(files, more...) {
		want, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(dir, f)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(protocLine.ReplaceAllString(string(want), ""), protocLine.ReplaceAllString(string(got), "")); diff != "" {
			t.Errorf("%s is not what make generate writes (-fresh +committed):\n%s", name, diff)
		}
	}
}
