package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"netemd/internal/child"
	"netemd/internal/testenv"
)

// bin is the folder with the two programs.
var bin string

// fragile is the folder, in bin, with a netemd that has failpoints.
const fragile = "failpoints"

func TestMain(m *testing.M) {
	child.Run()
	dir, cleanup, err := programs()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		os.Exit(1)
	}
	bin = dir
	code := testenv.Run(m)
	cleanup() // no deferred call is made behind an exit
	os.Exit(code)
}

// programs takes the two programs that lie beside the test program, or builds
// them.
func programs() (dir string, cleanup func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(self), "netemd")); err == nil {
		return filepath.Dir(self), func() {}, nil
	}
	if dir, err = os.MkdirTemp("", "netemd-e2e-"); err != nil {
		return "", nil, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // other users run netemctl too
		return "", nil, err
	}
	build := exec.Command("go", "build", "-o", dir+"/", "netemd/cmd/netemd", "netemd/cmd/netemctl")
	if out, err := build.CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}
